#include "backend/cuda/step_tables.h"

#include <algorithm>
#include <cstring>

#include "backend/cuda/cuda_error.h"
#include "backend/cuda/device_memory.h"

namespace vernier::cuda {

bool CachedArray::holds(std::span<const std::byte> bytes) const {
  return device_.data() != nullptr && std::equal(bytes.begin(), bytes.end(), contents_.begin(), contents_.end());
}

Result<const void*> CachedArray::get(UploadRing& uploads, cudaStream_t stream, std::span<const std::byte> bytes) {
  if (holds(bytes)) return device_.data();
  contents_.clear();
  if (device_.data() == nullptr || bytes.size() > device_.size()) {
    device_ = Buffer();
    ++moves_;
    VN_ASSIGN(device_, allocate_device(std::max(bytes.size() + bytes.size() / 2, kLeastBytes), "a step's tables"));
  }
  VN_ASSIGN(const void* uploaded, uploads.upload(bytes.data(), bytes.size()));
  VN_CUDA(cudaMemcpyAsync(device_.data(), uploaded, bytes.size(), cudaMemcpyDeviceToDevice, stream));
  contents_.assign(bytes.begin(), bytes.end());
  return device_.data();
}

Result<StepView> StepTables::step(std::span<const SequenceSlice> slices, std::int64_t num_rows) {
  constexpr std::size_t kInts = sizeof(DeviceSlice) / sizeof(std::int32_t);
  std::size_t num_pages = 0;
  for (const SequenceSlice& slice : slices) num_pages += slice.pages.size();
  const std::size_t rows_at = slices.size() * kInts;
  const std::size_t pages_at = rows_at + static_cast<std::size_t>(num_rows);
  // One array: slices, the slice of each row, pages; never empty.
  std::vector<std::int32_t> table(pages_at + num_pages + 1, -1);
  std::size_t next_page = 0;
  for (std::size_t i = 0; i < slices.size(); ++i) {
    const SequenceSlice& slice = slices[i];
    const DeviceSlice entry = {slice.first_row, slice.num_tokens, slice.past, static_cast<std::int32_t>(next_page),
                               slice.state_slot};
    std::memcpy(table.data() + i * kInts, &entry, sizeof(entry));
    std::fill_n(table.begin() + static_cast<std::ptrdiff_t>(rows_at) + slice.first_row, slice.num_tokens,
                static_cast<std::int32_t>(i));
    std::copy(slice.pages.begin(), slice.pages.end(),
              table.begin() + static_cast<std::ptrdiff_t>(pages_at + next_page));
    next_page += slice.pages.size();
  }
  VN_ASSIGN(const void* data, step_.get(uploads_, stream_, std::as_bytes(std::span(table))));
  const auto* ints = static_cast<const std::int32_t*>(data);
  return StepView{.slices = static_cast<const DeviceSlice*>(data),
                  .num_slices = static_cast<std::int32_t>(slices.size()),
                  .slice_of_row = ints + rows_at,
                  .pages = ints + pages_at};
}

Result<const std::int32_t*> StepTables::tokens(std::span<const std::int32_t> tokens) {
  VN_ASSIGN(const void* data, tokens_.get(uploads_, stream_, std::as_bytes(tokens)));
  return static_cast<const std::int32_t*>(data);
}

Result<const double*> StepTables::frequencies(std::span<const double> frequencies) {
  const std::span<const std::byte> bytes = std::as_bytes(frequencies);
  for (CachedArray& kind : frequencies_) {
    if (!kind.holds(bytes)) continue;
    VN_ASSIGN(const void* data, kind.get(uploads_, stream_, bytes));
    return static_cast<const double*>(data);
  }
  CachedArray& kind = frequencies_[next_kind_];
  next_kind_ = (next_kind_ + 1) % kKinds;
  VN_ASSIGN(const void* data, kind.get(uploads_, stream_, bytes));
  return static_cast<const double*>(data);
}

}  // namespace vernier::cuda
