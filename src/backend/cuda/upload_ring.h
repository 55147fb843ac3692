// Small host arrays (tokens, slices, page tables) on their way to the GPU without waiting for it.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstddef>
#include <vector>

#include "backend/backend.h"
#include "backend/copy_memory.h"

namespace vernier::cuda {

/// A ring of segments, in host memory (page-locked where the system grants it) and again in device memory. An array is
/// copied into the host's segment and from there, in stream order, into the device's.
class UploadRing {
 public:
  UploadRing(cudaStream_t stream, CopyMemory& memory) : stream_(stream), memory_(memory) {}
  ~UploadRing();
  UploadRing(const UploadRing&) = delete;
  UploadRing& operator=(const UploadRing&) = delete;

  /// Takes the memory of the first segments ahead of use.
  [[nodiscard]] Status prepare() { return grow(kFirstSegmentBytes); }
  /// The array in device memory, aligned to 16 bytes, for work that is enqueued on the stream before kSegments - 1 more
  /// segments are filled: all arrays of one operation may be alive together. `host` may change as soon as this returns.
  [[nodiscard]] Result<const void*> upload(const void* host, std::size_t size_bytes);

 private:
  static constexpr std::size_t kSegments = 8;
  static constexpr std::size_t kFirstSegmentBytes = std::size_t{64} << 10;

  Status grow(std::size_t size_bytes);
  Status enter_next_segment();

  cudaStream_t stream_;
  CopyMemory& memory_;
  Buffer host_;
  Buffer device_;
  std::vector<Buffer> outgrown_;  ///< an operation under way may hold pointers into these
  std::size_t segment_bytes_ = 0;
  std::size_t segment_ = 0;
  std::size_t used_ = 0;                            ///< of the current segment
  std::array<cudaEvent_t, kSegments> copied_ = {};  ///< recorded when a segment was left
};

}  // namespace vernier::cuda
