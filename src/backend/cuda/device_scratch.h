// Working memory of operations: one growing buffer a use, kept between calls, so that a step allocates nothing once
// each operation has seen its largest shape.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstddef>
#include <cstdint>

#include "backend/backend.h"

namespace vernier::cuda {

/// Who uses a buffer. Uses that may be alive at the same time have slots of their own.
enum class ScratchSlot : std::uint8_t {
  kAttentionPartials,
  kDeltaNetMixed,
  kDeltaNetOutput,
  kDeltaNetGates,
  kLinearInput,
  kMlpHidden,
  kRouterLogits,
  kExpertGroups,
  kExpertInput,
  kExpertHidden,
  kExpertOutput,
  kExpertSpare,
  kRankMaxima,
  kPublishedWeight,  ///< a weight on its way into its packed form
  kCount,
};

class DeviceScratch {
 public:
  explicit DeviceScratch(cudaStream_t stream) : stream_(stream) {}

  /// At least `size_bytes` of device memory, aligned to 256 bytes. What an earlier call for the same slot returned is
  /// gone for the host; work that is enqueued already may still use it. kInternal where growing would be needed while
  /// the stream is being captured.
  [[nodiscard]] Result<void*> get(ScratchSlot slot, std::size_t size_bytes);
  /// `count` counters in device memory, all zero. Kernels that count with them leave zeros: those of the stream follow
  /// each other and may all have the same ones.
  [[nodiscard]] Result<unsigned*> counters(std::int64_t count);
  /// Rises when a buffer moves.
  [[nodiscard]] std::uint64_t generation() const { return generation_; }

 private:
  static constexpr std::int64_t kLeastCounters = 4096;

  /// A buffer of at least `size_bytes` in place of `buffer`, which is smaller.
  [[nodiscard]] Status grow(Buffer& buffer, std::size_t size_bytes);

  cudaStream_t stream_;
  std::uint64_t generation_ = 0;
  Buffer counters_;
  std::array<Buffer, static_cast<std::size_t>(ScratchSlot::kCount)> buffers_;
};

}  // namespace vernier::cuda
