// The small kernels around the experts' products, as host code launches them.
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdint>

#include "backend/backend.h"
#include "backend/cuda/linear/product.h"

namespace vernier::cuda {

/// Uses as they are grouped by expert; an expert with more than `most_uses` has several groups.
struct GroupedUses {
  std::int64_t uses = 0;
  std::int64_t experts = 0;
  std::int64_t most_uses = 0;  ///< of a group
  [[nodiscard]] std::int64_t most_groups() const { return std::min(uses, experts + uses / most_uses); }
};
/// 32-bit numbers in the group table.
[[nodiscard]] std::int64_t group_table_size(const GroupedUses& sizes);

/// A step's tokens, rounded to bf16 terms in the same launch.
struct RoundedTokens {
  InputView x;
  std::int64_t rows = 0;  ///< none: nothing to round
  std::int32_t cols = 0;
  std::uint16_t* to = nullptr;  ///< as round_input() leaves them
  std::int64_t stride = 0;
};
/// Groups ids [uses] by expert into `table`. Ids outside the experts are left out.
[[nodiscard]] cudaError_t group_uses(const std::int32_t* ids, const GroupedUses& sizes, std::int32_t* table,
                                     const RoundedTokens& tokens, cudaStream_t stream);
/// The parts of such a table.
[[nodiscard]] ExpertGroups group_table(const std::int32_t* table, const GroupedUses& sizes);

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
