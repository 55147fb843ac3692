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
  kRouterLogits,
  kExpertGroups,
  kExpertInput,
  kExpertHidden,
  kExpertOutput,
  kExpertSpare,
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
  /// Rises when a buffer moves.
  [[nodiscard]] std::uint64_t generation() const { return generation_; }

 private:
  cudaStream_t stream_;
  std::uint64_t generation_ = 0;
  std::array<Buffer, static_cast<std::size_t>(ScratchSlot::kCount)> buffers_;
};

}  // namespace vernier::cuda
