#include "backend/cuda/record_placements.h"

#include <algorithm>
#include <cstring>

#include "backend/cuda/device_memory.h"
#include "format/stored_rows.h"

namespace vernier::cuda {
namespace {

/// Runs begin at multiples of this in device memory, as they do where they are staged.
std::size_t aligned(std::size_t size) { return (size + 255) / 256 * 256; }

}  // namespace

RecordPlacements::~RecordPlacements() {
  if (copies_ != nullptr) {
    (void)cudaStreamSynchronize(copies_);
    (void)cudaStreamDestroy(copies_);
  }
  for (const auto& parcel : parcels_) {
    for (cudaEvent_t event : {parcel->begun, parcel->copied, parcel->packed}) {
      if (event != nullptr) (void)cudaEventDestroy(event);
    }
  }
}

Status RecordPlacements::prepare() {
  if (reports_.size() > 0) return {};
  VN_CUDA(cudaStreamCreateWithFlags(&copies_, cudaStreamNonBlocking));
  constexpr std::size_t kBytes = kMostReports * sizeof(PackReport);
  VN_ASSIGN(host_reports_, memory_.allocate(kBytes));
  VN_ASSIGN(blank_, allocate_device(kBytes, "reports of packing"));
  VN_ASSIGN(Buffer reports, allocate_device(kBytes + sizeof(PackReport), "reports of packing"));
  auto* const first = static_cast<PackReport*>(host_reports_.data());
  std::fill_n(first, kMostReports, PackReport{});
  VN_CUDA(cudaMemcpyAsync(blank_.data(), first, kBytes, cudaMemcpyHostToDevice, context_.stream));
  VN_CUDA(cudaMemsetAsync(reports.data(), 0, reports.size(), context_.stream));
  VN_CUDA(cudaStreamSynchronize(context_.stream));
  reports_ = std::move(reports);
  return {};
}

Result<RecordPlacements::Parcel*> RecordPlacements::parcel(std::int32_t number) {
  VN_TRY(prepare());
  const auto index = static_cast<std::size_t>(number);
  while (parcels_.size() <= index) {
    Parcel& parcel = *parcels_.emplace_back(std::make_unique<Parcel>());
    VN_CUDA(cudaEventCreate(&parcel.begun));
    VN_CUDA(cudaEventCreate(&parcel.copied));
    VN_CUDA(cudaEventCreateWithFlags(&parcel.packed, cudaEventDisableTiming));
  }
  return parcels_[index].get();
}

Result<std::byte*> RecordPlacements::stage(std::int32_t number, std::size_t size_bytes) {
  VN_ASSIGN(Parcel* const found, parcel(number));
  VN_CUDA(cudaEventSynchronize(found->copied));
  if (found->memory.size() < size_bytes) {
    found->memory = Buffer();
    VN_ASSIGN(found->memory, memory_.allocate(size_bytes));
  }
  return static_cast<std::byte*>(found->memory.data());
}

Status RecordPlacements::send(std::int32_t number, std::span<const RecordPlacer::Run> runs) {
  VN_ASSIGN(Parcel* const found, parcel(number));
  Parcel& parcel = *found;
  float milliseconds = 0.0F;
  if (parcel.size > 0 && cudaEventElapsedTime(&milliseconds, parcel.begun, parcel.copied) == cudaSuccess &&
      milliseconds > 0.0F) {
    bytes_per_second_ = static_cast<double>(parcel.size) * 1e3 / milliseconds;
  }
  (void)cudaGetLastError();  // copies that haven't ended are no error
  std::size_t size = 0;
  for (const RecordPlacer::Run& run : runs) size += aligned(run.bytes.size());
  if (parcel.published.size() < size) {
    VN_CUDA(cudaEventSynchronize(parcel.copied));
    VN_CUDA(cudaEventSynchronize(parcel.packed));
    parcel.published = Buffer();
    VN_ASSIGN(parcel.published, allocate_device(size, "experts on their way"));
  }
  VN_CUDA(cudaStreamWaitEvent(copies_, parcel.packed, 0));
  VN_CUDA(cudaEventRecord(parcel.begun, copies_));
  VN_TRY(copy(parcel, runs));
  parcel.size = size;
  return cuda_status(cudaEventRecord(parcel.copied, copies_), "cudaEventRecord");
}

/// Staged runs follow each other in host memory as they do here, and go as one copy.
Status RecordPlacements::copy(Parcel& parcel, std::span<const RecordPlacer::Run> runs) {
  parcel.arrived.clear();
  auto* to = static_cast<std::byte*>(parcel.published.data());
  for (std::size_t i = 0; i < runs.size();) {
    const std::byte* const source = runs[i].source;
    std::size_t size = 0;
    std::size_t end = 0;
    do {
      parcel.arrived.push_back({runs[i].bytes, to + size});
      end = size + runs[i].bytes.size();
      size = aligned(end);
      ++i;
    } while (i < runs.size() && runs[i].source == source + size);
    VN_CUDA(cudaMemcpyAsync(to, source, end, cudaMemcpyHostToDevice, copies_));
    to += size;
  }
  return {};
}

namespace {

/// Where bytes of host memory lie in device memory; null: they weren't sent.
template <class Arrived>
std::byte* find(const std::vector<Arrived>& arrived, const std::byte* host) {
  auto after = std::upper_bound(arrived.begin(), arrived.end(), host,
                                [](const std::byte* at, const Arrived& run) { return at < run.bytes.data(); });
  if (after == arrived.begin()) return nullptr;
  const Arrived& run = *--after;
  const auto at = static_cast<std::size_t>(host - run.bytes.data());
  return at < run.bytes.size() ? run.published + at : nullptr;
}

}  // namespace

Status RecordPlacements::begin(const RecordPlacer::Part& part, const Parcel& parcel) {
  auto* const reports = static_cast<PackReport*>(reports_.data());
  if (part.host == nullptr) {
    std::byte* const from = find(parcel.arrived, part.raw.data());
    if (from == nullptr) return fail(ErrorCode::kInternal, "bytes of a record weren't sent");
    return cuda_status(cudaMemcpyAsync(part.record, from, part.raw.size(), cudaMemcpyDeviceToDevice, context_.stream),
                       "cudaMemcpyAsync");
  }
  const StoredRows scales = scale_rows(*part.host);
  const PublishedRecord published = {find(parcel.arrived, part.host->codes),
                                     scales.rows > 0 ? find(parcel.arrived, scales.data) : nullptr};
  if (published.codes == nullptr || (scales.rows > 0 && published.scales == nullptr)) {
    return fail(ErrorCode::kInternal, "a weight of a record wasn't sent");
  }
  if (part.known != nullptr) return repeat_record(context_, part, published, reports + kMostReports);
  VN_ASSIGN(RecordUnderWay record, begin_record(context_, part, published, reports + under_way_.size()));
  under_way_.push_back(std::move(record));
  return {};
}

Status RecordPlacements::place(std::int32_t number, std::span<const RecordPlacer::Part> parts) {
  VN_ASSIGN(Parcel* const found, parcel(number));
  const auto is_new = [](const RecordPlacer::Part& part) { return part.host != nullptr && part.known == nullptr; };
  const auto count = static_cast<std::size_t>(std::count_if(parts.begin(), parts.end(), is_new));
  if (count > kMostReports) return fail(ErrorCode::kInternal, "{} records at a time", count);
  if (under_way_.size() + count > kMostReports) VN_TRY(complete());
  VN_CUDA(cudaStreamWaitEvent(context_.stream, found->copied, 0));
  if (count > 0) {
    auto* const reports = static_cast<PackReport*>(reports_.data());
    VN_CUDA(cudaMemcpyAsync(reports + under_way_.size(), blank_.data(), count * sizeof(PackReport),
                            cudaMemcpyDeviceToDevice, context_.stream));
  }
  for (const RecordPlacer::Part& part : parts) VN_TRY(begin(part, *found));
  return cuda_status(cudaEventRecord(found->packed, context_.stream), "cudaEventRecord");
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
