// The router's kernels, as host code launches them.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "backend/backend.h"
#include "backend/cuda/fragment/weight_ref.h"
#include "backend/cuda/linear/product.h"

namespace vernier::cuda {

struct RouterLogits {
  MatrixRef router;  ///< [experts, dim]
  const float* x = nullptr;
  std::int64_t x_stride = 0;
  std::int64_t tokens = 0;
  float* logits = nullptr;  ///< out [tokens, experts]
  RowNorm norm = {};        ///< of x, into its memory
};

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

/// True where route() has a kernel for the weight: plain elements, or packed BF16 and F32.
[[nodiscard]] bool has_route_kernel(FormatId format, const WeightRef& router);
/// Numbers that `logits` of route() has room for.
[[nodiscard]] std::int64_t router_sums(const WeightRef& router, std::int64_t tokens);
/// Both in one launch: logits = router(x), all in fp32, and the choice from them. `arrivals`: a zero for each token,
/// and zeros again afterwards.
[[nodiscard]] cudaError_t route(FormatId format, const RouterLogits& logits, const ChooseExperts& choice,
                                unsigned* arrivals, cudaStream_t stream);
[[nodiscard]] bool has_packed_route(Packing packing);
/// The same for weights of which has_packed_route() is true. What it leaves in `logits` are router_sums() sums.
[[nodiscard]] cudaError_t route_packed(const RouterLogits& logits, const ChooseExperts& choice, unsigned* arrivals,
                                       cudaStream_t stream);

/// The same by clusters of blocks, without `logits`, on devices and for tokens and a weight that suit.
[[nodiscard]] bool has_cluster_route(const RouterLogits& logits);
[[nodiscard]] cudaError_t route_in_cluster(const RouterLogits& logits, const ChooseExperts& choice,
                                           cudaStream_t stream);
/// Whether route_in_cluster() can norm x, of which the alignment and number of rows say.
[[nodiscard]] bool can_norm_row(const RouterLogits& logits);

}  // namespace vernier::cuda
