// What the routers on tensor cores have in common (router_packed.cu, router_cluster.cu): how columns are cut, how an
// input becomes operands, and which sums of a unit are kept apart.
#pragma once

#include <cstdint>

#include "backend/cuda/experts/router.h"
#include "backend/cuda/fragment/mma.cuh"
#include "backend/cuda/fragment/packing.h"
#include "backend/cuda/fragment/stage.cuh"
#include "backend/cuda/linear/narrow_input.cuh"

namespace vernier::cuda {

constexpr int kQuarters = 4;  ///< of the columns, each with a sum of its own

/// First unit of a quarter, or the end.
__host__ __device__ constexpr int quarter_begin(int units, int quarter) {
  const int begin = (units + kChunkUnits - 1) / kChunkUnits * quarter / kQuarters * kChunkUnits;
  return begin < units ? begin : units;
}
/// No quarter has more.
__host__ __device__ constexpr int most_quarter_units(int units) {
  return ((units + kChunkUnits - 1) / kChunkUnits + kQuarters - 1) / kQuarters * kChunkUnits;
}

/// Four columns of a token; those beyond the last token are the last token's again. `is_whole`: four columns, from a
/// multiple of four on, are all there and aligned, or none is.
__device__ __forceinline__ float4 load_router_input(const RouterLogits& logits, bool is_whole, std::int64_t token,
                                                    int col) {
  const std::int64_t last = logits.tokens - 1;
  const float* const x = logits.x + (token < last ? token : last) * logits.x_stride;
  const int cols = logits.router.weight.cols;
  if (!is_whole) return load_columns(x, col, cols);
  if (col >= cols) return make_float4(0.0F, 0.0F, 0.0F, 0.0F);
  return *reinterpret_cast<const float4*>(x + col);
}

/// Four columns as B's fragments of the three terms.
__device__ __forceinline__ void split_columns(const float4& v, FragmentB (&terms)[3]) {
  const Bf16Terms of[4] = {split_terms(v.x), split_terms(v.y), split_terms(v.z), split_terms(v.w)};
#pragma unroll
  for (int term = 0; term < 3; ++term) {
    terms[term].word[0] = pack_upper_halves(of[0].term[term], of[1].term[term]);
    terms[term].word[1] = pack_upper_halves(of[2].term[term], of[3].term[term]);
  }
}

/// A unit's sums: of the first terms, and of the others.
struct UnitSums {
  float first[4] = {};
  float rest[4] = {};

  /// The sum of both. Of an infinite weight the first terms' alone: the others may be zeros.
  [[nodiscard]] __device__ __forceinline__ float value(int i) const {
    return rest[i] == rest[i] ? __fadd_rn(rest[i], first[i]) : first[i];
  }
};

}  // namespace vernier::cuda
