// The router's kernels, as host code launches them.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "backend/backend.h"
#include "backend/cuda/fragment/weight_ref.h"

namespace vernier::cuda {

struct RouterLogits {
  MatrixRef router;  ///< [experts, dim]
  const float* x = nullptr;
  std::int64_t x_stride = 0;
  std::int64_t tokens = 0;
  float* logits = nullptr;  ///< out [tokens, experts]
};

/// True where router_logits() has a kernel for the weight: plain elements, not packed.
[[nodiscard]] bool has_router_kernel(FormatId format, const WeightRef& router);
/// logits = router(x), all in fp32.
[[nodiscard]] cudaError_t router_logits(FormatId format, const RouterLogits& args, cudaStream_t stream);

struct ChooseExperts {
  const float* logits = nullptr;  ///< [tokens, experts]
  std::int64_t tokens = 0;
  std::int32_t experts = 0;
  std::int32_t top_k = 0;
  bool softmax_all = false;
  const float* expert_scale = nullptr;  ///< [experts] or null
  std::int32_t* ids = nullptr;
  float* weights = nullptr;
};
/// As choose_experts() of backend/routing.h, for every token.
[[nodiscard]] cudaError_t choose_experts(const ChooseExperts& args, cudaStream_t stream);

}  // namespace vernier::cuda
