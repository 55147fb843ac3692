// Copies to the GPU on a stream of their own, beside the kernels on the backend's.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>

#include "backend/copy_lane.h"

namespace vernier::cuda {

class StreamCopyLane final : public CopyLane {
 public:
  /// `compute` is the backend's stream on `device`; it must outlive the lane.
  [[nodiscard]] static Result<std::unique_ptr<CopyLane>> create(int device, cudaStream_t compute);
  ~StreamCopyLane() override;

  [[nodiscard]] Status copy(void* device, const void* host, std::size_t size_bytes) override;
  [[nodiscard]] Status follow_compute() override;
  [[nodiscard]] Status lead_compute() override;
  [[nodiscard]] double bytes_per_second() override;

 private:
  /// Copies below this are timed by their latency, not by the bus.
  static constexpr std::uint64_t kTimedBytes = 1 << 20;

  StreamCopyLane(int device, cudaStream_t compute) : device_(device), compute_(compute) {}
  [[nodiscard]] Status create_streams();
  [[nodiscard]] Status read_timing();

  int device_;
  cudaStream_t compute_;
  cudaStream_t copies_ = nullptr;
  cudaEvent_t compute_done_ = nullptr;
  cudaEvent_t copies_done_ = nullptr;
  // Around the copies since the last fence: with time stamps, as fences have none.
  cudaEvent_t batch_begin_ = nullptr;
  cudaEvent_t batch_end_ = nullptr;
  std::uint64_t batch_bytes_ = 0;  ///< enqueued since the last fence
  std::uint64_t timed_bytes_ = 0;  ///< between the two time stamps; 0: nothing to read
  double bytes_per_second_ = 0.0;
};

}  // namespace vernier::cuda
