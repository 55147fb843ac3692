#include "backend/cuda/stream_copy_lane.h"

#include "backend/cuda/cuda_error.h"

namespace vernier::cuda {

Result<std::unique_ptr<CopyLane>> StreamCopyLane::create(int device, cudaStream_t compute) {
  std::unique_ptr<StreamCopyLane> lane(new StreamCopyLane(device, compute));
  VN_TRY(lane->create_streams());
  return std::unique_ptr<CopyLane>(std::move(lane));
}

Status StreamCopyLane::create_streams() {
  VN_CUDA(cudaSetDevice(device_));
  VN_CUDA(cudaStreamCreateWithFlags(&copies_, cudaStreamNonBlocking));
  VN_CUDA(cudaEventCreateWithFlags(&compute_done_, cudaEventDisableTiming));
  VN_CUDA(cudaEventCreateWithFlags(&copies_done_, cudaEventDisableTiming));
  VN_CUDA(cudaEventCreate(&batch_begin_));
  VN_CUDA(cudaEventCreate(&batch_end_));
  return {};
}

StreamCopyLane::~StreamCopyLane() {
  if (copies_ != nullptr) {
    (void)cudaStreamSynchronize(copies_);
    (void)cudaStreamDestroy(copies_);
  }
  for (cudaEvent_t event : {compute_done_, copies_done_, batch_begin_, batch_end_}) {
    if (event != nullptr) (void)cudaEventDestroy(event);
  }
}

Status StreamCopyLane::copy(void* device, const void* host, std::size_t size_bytes) {
  if (size_bytes == 0) return {};
  VN_CUDA(cudaSetDevice(device_));
  if (batch_bytes_ == 0) {
    VN_TRY(read_timing());
    if (timed_bytes_ == 0) VN_CUDA(cudaEventRecord(batch_begin_, copies_));
  }
  VN_CUDA(cudaMemcpyAsync(device, host, size_bytes, cudaMemcpyHostToDevice, copies_));
  batch_bytes_ += size_bytes;
  return {};
}

Status StreamCopyLane::follow_compute() {
  VN_CUDA(cudaSetDevice(device_));
  VN_CUDA(cudaEventRecord(compute_done_, compute_));
  VN_CUDA(cudaStreamWaitEvent(copies_, compute_done_, 0));
  return {};
}

Status StreamCopyLane::lead_compute() {
  VN_CUDA(cudaSetDevice(device_));
  if (batch_bytes_ >= kTimedBytes && timed_bytes_ == 0) {
    VN_CUDA(cudaEventRecord(batch_end_, copies_));
    timed_bytes_ = batch_bytes_;
  }
  batch_bytes_ = 0;
  VN_CUDA(cudaEventRecord(copies_done_, copies_));
  VN_CUDA(cudaStreamWaitEvent(compute_, copies_done_, 0));
  return {};
}

/// Takes the time between the stamps if the copies between them have ended; else leaves it for later.
Status StreamCopyLane::read_timing() {
  if (timed_bytes_ == 0) return {};
  const cudaError_t done = cudaEventQuery(batch_end_);
  if (done == cudaErrorNotReady) {
    (void)cudaGetLastError();
    return {};
  }
  VN_TRY(cuda_status(done, "cudaEventQuery"));
  float milliseconds = 0.0F;
  VN_CUDA(cudaEventElapsedTime(&milliseconds, batch_begin_, batch_end_));
  if (milliseconds > 0.0F) bytes_per_second_ = static_cast<double>(timed_bytes_) * 1e3 / milliseconds;
  timed_bytes_ = 0;
  return {};
}

double StreamCopyLane::bytes_per_second() {
  if (!read_timing()) return 0.0;
  return bytes_per_second_;
}

}  // namespace vernier::cuda
