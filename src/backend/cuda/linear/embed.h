// Embedding lookup, as host code launches it.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "backend/cuda/fragment/weight_ref.h"

namespace vernier::cuda {

struct EmbedTarget {
  const std::int32_t* tokens = nullptr;  ///< [count] in device memory
  std::int64_t count = 0;                ///< at least one
  float multiplier = 1.0F;
  float* x = nullptr;
  std::int64_t stride = 0;
};

[[nodiscard]] cudaError_t embed_rows(const WeightRef& table, const EmbedTarget& target, cudaStream_t stream);

}  // namespace vernier::cuda
