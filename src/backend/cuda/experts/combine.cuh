// The weighted sum of a token's experts.
#pragma once

#include "backend/cuda/experts/expert_kernels.h"

namespace vernier::cuda {

/// `sum` and what the experts of a token add to its column, in the order of its choices. Results that other blocks of
/// the same kernel have written count.
__device__ inline float add_experts(const CombineExperts& args, std::int64_t token, int col, float sum) {
  constexpr int kAtOnce = 8;  // on their way together
#pragma unroll 1
  for (int first = 0; first < args.top_k; first += kAtOnce) {
    int id[kAtOnce];
    float weight[kAtOnce];
    float result[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const std::int64_t use = token * args.top_k + min(first + i, args.top_k - 1);
      id[i] = args.ids[use];
      weight[i] = args.weights[use];
      result[i] = __ldcg(args.results + use * args.cols + col);
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      if (first + i >= args.top_k || id[i] == -1) continue;  // -1: computed elsewhere
      const bool known = id[i] >= 0 && id[i] < args.experts;
      sum = __fadd_rn(sum, __fmul_rn(weight[i], known ? result[i] : __int_as_float(0x7FC00000)));
    }
  }
  return sum;
}

}  // namespace vernier::cuda
