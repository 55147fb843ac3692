// What every operation of the CUDA backend gets: the device, its one stream, working memory and uploads.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <span>
#include <type_traits>

#include "backend/backend.h"
#include "backend/cuda/cuda_error.h"
#include "backend/cuda/device_scratch.h"
#include "backend/cuda/step_tables.h"
#include "backend/cuda/upload_ring.h"

namespace vernier::cuda {

struct CudaContext {
  int device = 0;
  cudaStream_t stream = nullptr;  ///< all work, in order; never the legacy default stream
  Precision precision = Precision::kBf16;
  int num_sms = 0;
  int capability = 0;                ///< 10 * major + minor: 90 on Hopper
  std::size_t max_shared_bytes = 0;  ///< dynamic shared memory that a block may opt in to
  DeviceScratch& scratch;
  UploadRing& uploads;
  StepTables& tables;

  /// A small host array in device memory (upload_ring.h says for how long).
  template <class T>
  [[nodiscard]] Result<const T*> upload(std::span<const T> values) const {
    static_assert(std::is_trivially_copyable_v<T>);
    VN_ASSIGN(const void* data, uploads.upload(values.data(), values.size_bytes()));
    return static_cast<const T*>(data);
  }
};

}  // namespace vernier::cuda
