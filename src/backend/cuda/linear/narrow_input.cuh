// What narrow products do with their input before they multiply: rows of fp32, or of bf16 terms, into shared memory.
#pragma once

#include <cstdint>

#include "backend/cuda/fragment/group_stage.cuh"
#include "backend/cuda/linear/product.h"

namespace vernier::cuda {

constexpr int kColumnPadding = 8;  ///< of a column in shared memory: its reads then meet no bank conflicts

/// How far apart columns lie there.
__host__ __device__ constexpr int staged_stride(Packing packing, int units) {
  const auto size = static_cast<int>(input_stride(packing, units));
  return (size + kUnitCols - 1) / kUnitCols * kUnitCols + kColumnPadding;
}

/// Four columns of fp32 input, zeros beyond the last.
__device__ __forceinline__ float4 load_columns(const float* x, int col, int cols) {
  return make_float4(col < cols ? x[col] : 0.0F, col + 1 < cols ? x[col + 1] : 0.0F, col + 2 < cols ? x[col + 2] : 0.0F,
                     col + 3 < cols ? x[col + 3] : 0.0F);
}

/// Four columns as terms, which lie `stride` apart. Returns the sum of each term's columns.
__device__ __forceinline__ Bf16Terms store_columns(std::uint16_t* to, int stride, int terms, const float4& v) {
  Bf16Terms sums = {};
  if (terms == 1) {
    const uint2 words = make_uint2(round_pair(v.x, v.y), round_pair(v.z, v.w));
    *reinterpret_cast<uint2*>(to) = words;
    sums.term[0] = __fadd_rn(add_halves(words.x), add_halves(words.y));
    return sums;
  }
  const Bf16Terms split[4] = {split_terms(v.x), split_terms(v.y), split_terms(v.z), split_terms(v.w)};
#pragma unroll
  for (int term = 0; term < 3; ++term) {
    const uint2 words = make_uint2(pack_upper_halves(split[0].term[term], split[1].term[term]),
                                   pack_upper_halves(split[2].term[term], split[3].term[term]));
    *reinterpret_cast<uint2*>(to + term * stride) = words;
    sums.term[term] = __fadd_rn(add_halves(words.x), add_halves(words.y));
  }
  return sums;
}

/// A column of shared memory: columns [0, padded) of the input, zeros from `cols` on; then perhaps sums of groups.
struct StagedColumns {
  std::uint16_t* to;
  int stride;
  int cols;
  int padded;
};

/// Rounds four columns of a row, and where the packing wants sums of groups, those: up to the end of a chunk. Lanes
/// that share a group are all here.
template <Packing kPacking>
__device__ __forceinline__ void round_columns(const StagedColumns& out, int terms, int col, const float4& v) {
  constexpr GroupShape kShape = group_shape(kPacking);
  Bf16Terms sums = {};
  if (!kShape.has_minimum || col < out.padded) sums = store_columns(out.to + col, out.stride, terms, v);
  if constexpr (kShape.has_minimum) {
    for (int term = 0; term < terms; ++term) {
      const float sum = sum_group<4>(sums.term[term], kShape.group_cols(), lanes_of_unit());
      if (col % kShape.group_cols() == 0) store_sum(kShape, out.to + term * out.stride + out.padded, col, sum);
    }
  }
}

/// All threads of a block: rounds a row of fp32. Several loads are on their way at once.
template <Packing kPacking = Packing::kNone>
__device__ void round_row(const float* x, const StagedColumns& out, int terms) {
  constexpr int kAtOnce = 8;
  const int step = static_cast<int>(blockDim.x) * 4;
  const int end = columns_with_sums(group_shape(kPacking), out.padded);
  const bool whole = (reinterpret_cast<std::uintptr_t>(x) & 15) == 0 && out.cols % 4 == 0;
  if (!whole) {
    for (int col = static_cast<int>(threadIdx.x) * 4; col < end; col += step) {
      round_columns<kPacking>(out, terms, col, load_columns(x, col, out.cols));
    }
    return;
  }
  for (int first = static_cast<int>(threadIdx.x) * 4; first < end; first += step * kAtOnce) {
    float4 v[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      v[i] = make_float4(0.0F, 0.0F, 0.0F, 0.0F);
      if (first + i * step < out.cols) v[i] = *reinterpret_cast<const float4*>(x + first + i * step);
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      if (first + i * step < end) round_columns<kPacking>(out, terms, first + i * step, v[i]);
    }
  }
}

/// Copies eights of a row of bf16 terms up to `end`, a thread's from `begin` on, `step` numbers apart.
__device__ __forceinline__ void copy_eights(const std::uint16_t* x, std::uint16_t* to, int begin, int end, int step) {
  constexpr int kAtOnce = 4;
  for (int first = begin; first < end; first += step * kAtOnce) {
    uint4 v[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      if (first + i * step < end) v[i] = *reinterpret_cast<const uint4*>(x + first + i * step);
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      if (first + i * step < end) *reinterpret_cast<uint4*>(to + first + i * step) = v[i];
    }
  }
}

/// All threads of a block: copies a row of bf16 terms, `size` numbers.
__device__ inline void copy_row(const std::uint16_t* x, std::uint16_t* to, int size) {
  copy_eights(x, to, static_cast<int>(threadIdx.x) * 8, size, static_cast<int>(blockDim.x) * 8);
}

/// Stores a value's terms, the rows of which lie `stride` apart.
__device__ inline void store_terms(std::uint16_t* to, std::int64_t stride, int terms, float value) {
  if (terms == 1) {
    *to = static_cast<std::uint16_t>(round_pair(value, 0.0F));
    return;
  }
  const Bf16Terms split = split_terms(value);
#pragma unroll
  for (int term = 0; term < 3; ++term) to[term * stride] = upper_half(split.term[term]);
}

}  // namespace vernier::cuda
