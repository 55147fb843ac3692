// The arithmetic of the gated delta net that the kernels for prompts and those for single tokens share, so that a
// token's bits don't depend on which of them it meets. With S the old state of a value head,
//   delta = beta (v - decay S^T k),  S' = decay S + k delta^T,  o = S'^T q = decay S^T q + (k.q) delta,
// so that both products of a token use the old state. A sum over keys is kKeyParts sums, each over its keys in
// ascending order, which are then added in pairs: part p with p ^ 8, then with p ^ 4, p ^ 2, p ^ 1.
#pragma once

#include "backend/cuda/ops/delta_net_kernels.h"
#include "backend/cuda/ops/math.cuh"

namespace vernier::cuda {

static_assert(kKeyParts == 16, "the order of additions above");

__device__ inline float delta_of(const DeltaNetGates& gates, float by_key, float v) {
  return __fmaf_rn(gates.negative_share, by_key, __fmul_rn(gates.beta, v));
}
__device__ inline float output_of(const DeltaNetGates& gates, float by_query, float delta) {
  return __fmaf_rn(gates.product, delta, __fmul_rn(gates.decay, by_query));
}
__device__ inline float next_state(float state, float decay, float k, float delta) {
  return __fmaf_rn(k, delta, __fmul_rn(decay, state));
}

/// The last part of a sum over keys, of eight parts that are sums of two.
__device__ inline float sum_of_pairs(const float (&pairs)[kKeyParts / 2]) {
  float fours[4];
#pragma unroll
  for (int p = 0; p < 4; ++p) fours[p] = __fadd_rn(pairs[p], pairs[p + 4]);
  return __fadd_rn(__fadd_rn(fours[0], fours[2]), __fadd_rn(fours[1], fours[3]));
}

/// y = norm * o * factor * silu(z) with factor = rsqrt(mean(o^2) + eps) of a head. A lane has summed the squares of
/// every kWarpSize-th number, in ascending order.
__device__ inline float norm_factor_of(float squares, std::int32_t dim, float eps) {
  return 1.0F / sqrtf(warp_sum(squares) / static_cast<float>(dim) + eps);
}
/// The same by a warp that reads all of `o` [dim].
__device__ inline float norm_factor(const float* o, std::int32_t dim, float eps) {
  float squares = 0.0F;
#pragma unroll 4
  for (std::int32_t d = static_cast<std::int32_t>(threadIdx.x) % kWarpSize; d < dim; d += kWarpSize) {
    squares = __fmaf_rn(o[d], o[d], squares);
  }
  return norm_factor_of(squares, dim, eps);
}
__device__ inline float gated_output(float weight, float o, float factor, float z) {
  return weight * o * factor * silu(z);
}

}  // namespace vernier::cuda
