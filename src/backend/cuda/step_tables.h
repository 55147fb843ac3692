// What kernels need to know of a step's sequences, and the frequencies of rotary embeddings, in device memory. Uploaded
// when the contents change: once a step, not once a layer.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "backend/cuda/upload_ring.h"

namespace vernier::cuda {

/// SequenceSlice for kernels.
struct DeviceSlice {
  std::int32_t first_row = 0;
  std::int32_t num_tokens = 0;
  std::int32_t past = 0;
  std::int32_t first_page = 0;  ///< of StepView::pages
  std::int32_t state_slot = 0;
};

/// Pointers into device memory.
struct StepView {
  const DeviceSlice* slices = nullptr;
  std::int32_t num_slices = 0;
  const std::int32_t* slice_of_row = nullptr;  ///< [rows], -1: a row of no slice
  const std::int32_t* pages = nullptr;         ///< the page tables of all slices, one behind the other
};

/// An array that stays in device memory until its contents change.
class CachedArray {
 public:
  [[nodiscard]] bool holds(std::span<const std::byte> bytes) const;
  /// Valid for work enqueued before the next call with other contents.
  [[nodiscard]] Result<const void*> get(UploadRing& uploads, cudaStream_t stream, std::span<const std::byte> bytes);

  /// How often the memory has been replaced.
  [[nodiscard]] std::uint64_t moves() const { return moves_; }

 private:
  static constexpr std::size_t kLeastBytes = std::size_t{64} << 10;  ///< most arrays never outgrow it

  std::vector<std::byte> contents_;
  Buffer device_;
  std::uint64_t moves_ = 0;
};

class StepTables {
 public:
  StepTables(UploadRing& uploads, cudaStream_t stream) : uploads_(uploads), stream_(stream) {}

  /// The tables of a step of `num_rows` rows, valid for work enqueued before the call for another step.
  [[nodiscard]] Result<StepView> step(std::span<const SequenceSlice> slices, std::int64_t num_rows);

  /// A step's tokens, valid as long.
  [[nodiscard]] Result<const std::int32_t*> tokens(std::span<const std::int32_t> tokens);
  /// Rises when the tables of steps move.
  [[nodiscard]] std::uint64_t generation() const { return step_.moves() + tokens_.moves(); }

  /// `frequencies` in device memory, valid until kKinds others have been asked for.
  [[nodiscard]] Result<const double*> frequencies(std::span<const double> frequencies);

 private:
  static constexpr std::size_t kKinds = 8;  ///< a model has one or two kinds of rotary layers

  UploadRing& uploads_;
  cudaStream_t stream_;
  CachedArray step_;
  CachedArray tokens_;
  std::array<CachedArray, kKinds> frequencies_;
  std::size_t next_kind_ = 0;
};

}  // namespace vernier::cuda
