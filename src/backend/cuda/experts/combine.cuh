// The weighted sum of a token's experts.
#pragma once

#include "backend/cuda/experts/expert_kernels.h"

namespace vernier::cuda {

/// kCols columns (1 or 4, whose rows are aligned to as many) of `sum` and what the experts of a token add to them, in
/// the order of its choices. Results that other blocks of the same kernel have written count.
template <int kCols>
__device__ __forceinline__ void add_experts(const CombineExperts& args, std::int64_t token, int col,
                                            float (&sum)[kCols]) {
  constexpr int kAtOnce = 8;  // on their way together
#pragma unroll 1
  for (int first = 0; first < args.top_k; first += kAtOnce) {
    int id[kAtOnce];
    float weight[kAtOnce];
    float result[kAtOnce][kCols];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      id[i] = -1;
      if (first + i >= args.top_k) continue;
      const std::int64_t use = token * args.top_k + first + i;
      const float* const from = args.results + use * args.cols + col;
      id[i] = args.ids[use];
      weight[i] = args.weights[use];
      if constexpr (kCols == 4) {
        const float4 four = __ldcg(reinterpret_cast<const float4*>(from));
        result[i][0] = four.x;
        result[i][1] = four.y;
        result[i][2] = four.z;
        result[i][3] = four.w;
      } else {
        result[i][0] = __ldcg(from);
      }
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      if (id[i] == -1) continue;  // computed elsewhere
      const bool known = id[i] >= 0 && id[i] < args.experts;
#pragma unroll
      for (int c = 0; c < kCols; ++c) {
        sum[c] = __fadd_rn(sum[c], __fmul_rn(weight[i], known ? result[i][c] : __int_as_float(0x7FC00000)));
      }
    }
  }
}

}  // namespace vernier::cuda
