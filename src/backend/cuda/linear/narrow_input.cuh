// What narrow products do with their input before they multiply: rows of fp32, or of bf16 terms, into shared memory.
#pragma once

#include <cstdint>

#include "backend/cuda/fragment/mma.cuh"
#include "backend/cuda/linear/product.h"

namespace vernier::cuda {

constexpr int kColumnPadding = 8;  ///< of a column in shared memory: its reads then meet no bank conflicts

/// Four columns of fp32 input, zeros beyond the last.
__device__ __forceinline__ float4 load_columns(const float* x, int col, int cols) {
  return make_float4(col < cols ? x[col] : 0.0F, col + 1 < cols ? x[col + 1] : 0.0F, col + 2 < cols ? x[col + 2] : 0.0F,
                     col + 3 < cols ? x[col + 3] : 0.0F);
}

/// Four columns as terms, which lie `stride` apart.
__device__ __forceinline__ void store_columns(std::uint16_t* to, int stride, int terms, const float4& v) {
  if (terms == 1) {
    *reinterpret_cast<uint2*>(to) = make_uint2(round_pair(v.x, v.y), round_pair(v.z, v.w));
    return;
  }
  const Bf16Terms split[4] = {split_terms(v.x), split_terms(v.y), split_terms(v.z), split_terms(v.w)};
#pragma unroll
  for (int term = 0; term < 3; ++term) {
    *reinterpret_cast<uint2*>(to + term * stride) =
        make_uint2(pack_upper_halves(split[0].term[term], split[1].term[term]),
                   pack_upper_halves(split[2].term[term], split[3].term[term]));
  }
}

/// A column of shared memory: columns [0, padded) of the input, zeros from `cols` on.
struct StagedColumns {
  std::uint16_t* to;
  int stride;
  int cols;
  int padded;
};

/// All threads of a block: rounds a row of fp32. Several loads are on their way at once.
__device__ inline void round_row(const float* x, const StagedColumns& out, int terms) {
  constexpr int kAtOnce = 8;
  const int step = static_cast<int>(blockDim.x) * 4;
  const bool whole = (reinterpret_cast<std::uintptr_t>(x) & 15) == 0 && out.cols % 4 == 0;
  if (!whole) {
    for (int col = static_cast<int>(threadIdx.x) * 4; col < out.padded; col += step) {
      store_columns(out.to + col, out.stride, terms, load_columns(x, col, out.cols));
    }
    return;
  }
  for (int first = static_cast<int>(threadIdx.x) * 4; first < out.padded; first += step * kAtOnce) {
    float4 v[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      v[i] = make_float4(0.0F, 0.0F, 0.0F, 0.0F);
      if (first + i * step < out.cols) v[i] = *reinterpret_cast<const float4*>(x + first + i * step);
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      if (first + i * step < out.padded) store_columns(out.to + first + i * step, out.stride, terms, v[i]);
    }
  }
}

/// All threads of a block: copies a row of bf16 terms, whose columns are padded already.
__device__ inline void copy_row(const std::uint16_t* x, const StagedColumns& out) {
  constexpr int kAtOnce = 4;
  const int step = static_cast<int>(blockDim.x) * 8;
  for (int first = static_cast<int>(threadIdx.x) * 8; first < out.padded; first += step * kAtOnce) {
    uint4 v[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      if (first + i * step < out.padded) v[i] = *reinterpret_cast<const uint4*>(x + first + i * step);
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      if (first + i * step < out.padded) *reinterpret_cast<uint4*>(out.to + first + i * step) = v[i];
    }
  }
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
