#include "backend/cuda/device_scratch.h"

#include <algorithm>

#include "backend/cuda/cuda_error.h"
#include "backend/cuda/device_memory.h"

namespace vernier::cuda {

Result<void*> DeviceScratch::get(ScratchSlot slot, std::size_t size_bytes) {
  Buffer& buffer = buffers_[static_cast<std::size_t>(slot)];
  if (size_bytes <= buffer.size()) return buffer.data();
  cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
  VN_CUDA(cudaStreamIsCapturing(stream_, &capture));
  if (capture != cudaStreamCaptureStatusNone) {
    return fail(ErrorCode::kInternal, "cuda: scratch {} would grow from {} to {} bytes within a capture",
                static_cast<int>(slot), buffer.size(), size_bytes);
  }
  // Enqueued work may still use the old buffer. Memory is tight on a GPU, so the old one goes before the new one comes.
  VN_CUDA(cudaStreamSynchronize(stream_));
  const std::size_t grown = std::max(size_bytes, buffer.size() + buffer.size() / 2);
  buffer = Buffer();
  ++generation_;
  auto larger = allocate_device(grown, "working memory");
  if (larger) {
    buffer = *std::move(larger);
  } else {
    VN_ASSIGN(buffer, allocate_device(size_bytes, "working memory"));
  }
  return buffer.data();
}

}  // namespace vernier::cuda
