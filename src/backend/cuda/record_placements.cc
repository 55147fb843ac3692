#include "backend/cuda/record_placements.h"

#include <algorithm>
#include <cstring>

#include "backend/cuda/device_memory.h"

namespace vernier::cuda {

RecordPlacements::~RecordPlacements() {
  for (const Half& half : halves_) {
    if (half.copied == nullptr) continue;
    (void)cudaEventSynchronize(half.copied);
    (void)cudaEventDestroy(half.copied);
  }
}

Result<std::byte*> RecordPlacements::stage(std::size_t size_bytes) {
  half_ = (half_ + 1) % halves_.size();
  Half& half = halves_[half_];
  if (half.copied == nullptr) {
    VN_CUDA(cudaEventCreateWithFlags(&half.copied, cudaEventDisableTiming));
  } else {
    VN_CUDA(cudaEventSynchronize(half.copied));
  }
  if (half.memory.size() < size_bytes) {
    VN_ASSIGN(half.memory, memory_.allocate(size_bytes));
  }
  return static_cast<std::byte*>(half.memory.data());
}

Status RecordPlacements::prepare_reports() {
  if (reports_.size() > 0) return {};
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
  VN_TRY(prepare_reports());
  if (parts.size() > kMostReports) return fail(ErrorCode::kInternal, "{} records at a time", parts.size());
  if (under_way_.size() + parts.size() > kMostReports) VN_TRY(complete());
  const Half& half = halves_[half_];
  const auto* const staged = static_cast<const std::byte*>(half.memory.data());
  VN_ASSIGN(void* const memory, context_.scratch.get(ScratchSlot::kPublishedWeight, size_bytes));
  auto* const published = static_cast<std::byte*>(memory);
  VN_CUDA(cudaMemcpyAsync(published, staged, size_bytes, cudaMemcpyHostToDevice, context_.stream));
  VN_CUDA(cudaEventRecord(half.copied, context_.stream));
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
  return {};
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
