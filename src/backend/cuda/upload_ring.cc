#include "backend/cuda/upload_ring.h"

#include <cstring>

#include "backend/cuda/cuda_error.h"
#include "backend/cuda/device_memory.h"

namespace vernier::cuda {

UploadRing::~UploadRing() {
  for (cudaEvent_t event : copied_) {
    if (event != nullptr) (void)cudaEventDestroy(event);
  }
}

Result<const void*> UploadRing::upload(const void* host, std::size_t size_bytes) {
  const std::size_t rounded = (size_bytes + 15) / 16 * 16;
  if (rounded > segment_bytes_) {
    VN_TRY(grow(rounded));
  } else if (used_ + rounded > segment_bytes_) {
    VN_TRY(enter_next_segment());
  }
  const std::size_t at = segment_ * segment_bytes_ + used_;
  std::byte* const staged = static_cast<std::byte*>(host_.data()) + at;
  std::byte* const target = static_cast<std::byte*>(device_.data()) + at;
  if (size_bytes > 0) {
    std::memcpy(staged, host, size_bytes);
    VN_CUDA(cudaMemcpyAsync(target, staged, size_bytes, cudaMemcpyHostToDevice, stream_));
  }
  used_ += rounded;
  return static_cast<const void*>(target);
}

/// The device's half needs no fence: the copy into a segment is ordered behind the kernels that read its old contents.
Status UploadRing::enter_next_segment() {
  VN_CUDA(cudaEventRecord(copied_[segment_], stream_));
  segment_ = (segment_ + 1) % kSegments;
  used_ = 0;
  return cuda_status(cudaEventSynchronize(copied_[segment_]), "cudaEventSynchronize");
}

Status UploadRing::grow(std::size_t size_bytes) {
  std::size_t segment = segment_bytes_ == 0 ? kFirstSegmentBytes : segment_bytes_;
  while (segment < size_bytes) segment *= 2;
  for (cudaEvent_t& event : copied_) {
    if (event == nullptr) VN_CUDA(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  }
  VN_ASSIGN(Buffer host, memory_.allocate(segment * kSegments));
  VN_ASSIGN(Buffer device, allocate_device(segment * kSegments, "the upload ring"));
  outgrown_.push_back(std::move(host_));
  outgrown_.push_back(std::move(device_));
  host_ = std::move(host);
  device_ = std::move(device);
  segment_bytes_ = segment;
  segment_ = used_ = 0;
  return {};
}

}  // namespace vernier::cuda
