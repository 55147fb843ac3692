#include "backend/cuda/record_placements.h"

#include <algorithm>
#include <cstring>

#include "backend/cuda/device_memory.h"

namespace vernier::cuda {

RecordPlacements::~RecordPlacements() {
  if (copies_ != nullptr) {
    (void)cudaStreamSynchronize(copies_);
    (void)cudaStreamDestroy(copies_);
  }
  for (const Half& half : halves_) {
    for (cudaEvent_t event : {half.copied, half.packed}) {
      if (event != nullptr) (void)cudaEventDestroy(event);
    }
  }
}

Result<std::byte*> RecordPlacements::stage(std::size_t size_bytes) {
  VN_TRY(prepare());
  half_ = (half_ + 1) % halves_.size();
  Half& half = halves_[half_];
  VN_CUDA(cudaEventSynchronize(half.copied));
  if (half.memory.size() < size_bytes) {
    VN_ASSIGN(half.memory, memory_.allocate(size_bytes));
  }
  if (half.published.size() < size_bytes) {
    VN_CUDA(cudaEventSynchronize(half.packed));
    half.published = Buffer();
    VN_ASSIGN(half.published, allocate_device(size_bytes, "experts on their way"));
  }
  return static_cast<std::byte*>(half.memory.data());
}

Status RecordPlacements::prepare() {
  if (reports_.size() > 0) return {};
  VN_CUDA(cudaStreamCreateWithFlags(&copies_, cudaStreamNonBlocking));
  for (Half& half : halves_) {
    VN_CUDA(cudaEventCreateWithFlags(&half.copied, cudaEventDisableTiming));
    VN_CUDA(cudaEventCreateWithFlags(&half.packed, cudaEventDisableTiming));
  }
  constexpr std::size_t kBytes = kMostReports * sizeof(PackReport);
  VN_ASSIGN(host_reports_, memory_.allocate(kBytes));
  VN_ASSIGN(blank_, allocate_device(kBytes, "reports of packing"));
  VN_ASSIGN(Buffer reports, allocate_device(kBytes, "reports of packing"));
  auto* const first = static_cast<PackReport*>(host_reports_.data());
  std::fill_n(first, kMostReports, PackReport{});
  VN_CUDA(cudaMemcpyAsync(blank_.data(), first, kBytes, cudaMemcpyHostToDevice, context_.stream));
  VN_CUDA(cudaStreamSynchronize(context_.stream));
  reports_ = std::move(reports);
  return {};
}

Status RecordPlacements::place(std::span<const RecordPlacer::Part> parts, std::size_t size_bytes) {
  if (parts.size() > kMostReports) return fail(ErrorCode::kInternal, "{} records at a time", parts.size());
  if (under_way_.size() + parts.size() > kMostReports) VN_TRY(complete());
  const Half& half = halves_[half_];
  const auto* const staged = static_cast<const std::byte*>(half.memory.data());
  auto* const published = static_cast<std::byte*>(half.published.data());
  VN_CUDA(cudaStreamWaitEvent(copies_, half.packed, 0));
  VN_CUDA(cudaMemcpyAsync(published, staged, size_bytes, cudaMemcpyHostToDevice, copies_));
  VN_CUDA(cudaEventRecord(half.copied, copies_));
  VN_CUDA(cudaStreamWaitEvent(context_.stream, half.copied, 0));
  auto* const reports = static_cast<PackReport*>(reports_.data());
  VN_CUDA(cudaMemcpyAsync(reports + under_way_.size(), blank_.data(), parts.size() * sizeof(PackReport),
                          cudaMemcpyDeviceToDevice, context_.stream));
  for (const RecordPlacer::Part& part : parts) {
    if (part.host == nullptr) {
      VN_CUDA(cudaMemcpyAsync(part.record, published + (part.raw.data() - staged), part.raw.size(),
                              cudaMemcpyDeviceToDevice, context_.stream));
      continue;
    }
    VN_ASSIGN(RecordUnderWay record,
              begin_record(context_, part, published + (part.staged.codes - staged), reports + under_way_.size()));
    under_way_.push_back(std::move(record));
  }
  return cuda_status(cudaEventRecord(half.packed, context_.stream), "cudaEventRecord");
}

Status RecordPlacements::complete() {
  if (under_way_.empty()) return {};
  auto* const reports = static_cast<PackReport*>(host_reports_.data());
  VN_CUDA(cudaMemcpyAsync(reports, reports_.data(), under_way_.size() * sizeof(PackReport), cudaMemcpyDeviceToHost,
                          context_.stream));
  VN_CUDA(cudaStreamSynchronize(context_.stream));
  for (std::size_t i = 0; i < under_way_.size(); ++i) {
    VN_ASSIGN(Weight weight, finish_record(context_, under_way_[i], reports[i]));
    done_.push_back(std::move(weight));
  }
  under_way_.clear();
  return {};
}

Result<std::vector<Weight>> RecordPlacements::finish() {
  VN_TRY(complete());
  return std::exchange(done_, {});
}

}  // namespace vernier::cuda
