// The small kernels around the experts' products, as host code launches them.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "backend/backend.h"
#include "backend/cuda/linear/product.h"

namespace vernier::cuda {

/// 32-bit numbers in the group table of `uses` uses and `experts` experts.
[[nodiscard]] std::int64_t group_table_size(std::int64_t uses, std::int64_t experts);

/// Groups ids [uses] by expert into `table`. Ids outside the experts are left out.
[[nodiscard]] cudaError_t group_uses(const std::int32_t* ids, std::int64_t uses, std::int64_t experts,
                                     std::int32_t* table, cudaStream_t stream);
/// The parts of such a table.
[[nodiscard]] ExpertGroups group_table(const std::int32_t* table, std::int64_t experts);

/// gate = act(gate, up) for every use that has a place in the groups; the rows of others become zeros.
struct ActivateExperts {
  ActivationSpec spec;
  ExpertGroups groups;
  std::int64_t places = 0;
  std::int32_t cols = 0;
  std::int32_t experts = 0;
  float* gate = nullptr;      ///< [places, cols]
  const float* up = nullptr;  ///< [places, cols]
};
[[nodiscard]] cudaError_t activate_experts(const ActivateExperts& args, cudaStream_t stream);

/// y[t] += sum over j of weights[t, j] * results[t * top_k + j], in the order of j. An id of -1 adds nothing;
/// others outside the experts make the row NaN.
struct CombineExperts {
  const float* results = nullptr;  ///< [tokens * top_k, cols]
  const std::int32_t* ids = nullptr;
  const float* weights = nullptr;
  float* y = nullptr;
  std::int64_t y_stride = 0;
  std::int64_t tokens = 0;
  std::int32_t cols = 0;
  std::int32_t top_k = 0;
  std::int32_t experts = 0;
};
[[nodiscard]] cudaError_t combine_experts(const CombineExperts& args, cudaStream_t stream);

}  // namespace vernier::cuda
