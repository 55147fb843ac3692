#include "backend/cuda/device_scratch.h"

#include <algorithm>

#include "backend/cuda/cuda_error.h"
#include "backend/cuda/device_memory.h"

namespace vernier::cuda {

Result<void*> DeviceScratch::get(ScratchSlot slot, std::size_t size_bytes) {
  Buffer& buffer = buffers_[static_cast<std::size_t>(slot)];
  if (size_bytes > buffer.size()) {
    VN_TRY(grow(buffer, size_bytes));
    // Results of choices that are computed elsewhere are asked for before their ids are known, and thrown away
    // (experts/combine.cuh). They are numbers then, and initcheck has nothing to say.
    if (slot == ScratchSlot::kExpertOutput) VN_CUDA(cudaMemsetAsync(buffer.data(), 0, buffer.size(), stream_));
  }
  return buffer.data();
}

Result<unsigned*> DeviceScratch::counters(std::int64_t count) {
  const std::size_t bytes = static_cast<std::size_t>(std::max(count, kLeastCounters)) * sizeof(unsigned);
  if (bytes > counters_.size()) {
    VN_TRY(grow(counters_, bytes));
    VN_CUDA(cudaMemsetAsync(counters_.data(), 0, counters_.size(), stream_));
  }
  return static_cast<unsigned*>(counters_.data());
}

Status DeviceScratch::grow(Buffer& buffer, std::size_t size_bytes) {
  cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
  VN_CUDA(cudaStreamIsCapturing(stream_, &capture));
  if (capture != cudaStreamCaptureStatusNone) {
    return fail(ErrorCode::kInternal, "cuda: working memory would grow from {} to {} bytes within a capture",
                buffer.size(), size_bytes);
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
  return {};
}

}  // namespace vernier::cuda
