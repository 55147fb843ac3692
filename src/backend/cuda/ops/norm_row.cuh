// What kernels share that norm a row: the order of its sum of squares, so that all of them make the same numbers.
#pragma once

#include "backend/cuda/ops/math.cuh"

namespace vernier::cuda {

constexpr int kNormFours = 4;  ///< fours of columns that a thread keeps
constexpr unsigned kMostNormThreads = 512;

/// Threads that share a row, each by fours of columns: this depends on its length alone, and so does the order of the
/// sum.
__host__ __device__ constexpr unsigned norm_threads(std::int64_t cols) {
  unsigned threads = kWarpSize;
  while (threads < kMostNormThreads && std::int64_t{threads} * 8 < cols) threads *= 2;
  return threads;
}

#ifdef __CUDACC__

/// The sum over the first `num_warps` warps of a block, in each of their threads. `partial` holds a number a warp.
__device__ inline float block_sum(float value, float* partial, int num_warps) {
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  value = warp_sum(value);
  if (num_warps == 1) return value;
  if (lane == 0) partial[warp] = value;
  __syncthreads();
  return warp_sum(lane < num_warps ? partial[lane] : 0.0F);
}

__device__ inline float squares_of(const float4& v) {
  return __fadd_rn(__fmaf_rn(v.x, v.x, __fmul_rn(v.y, v.y)), __fmaf_rn(v.z, v.z, __fmul_rn(v.w, v.w)));
}

/// What the row is multiplied with, from its sum of squares.
__device__ inline float norm_factor(float squares, std::int64_t cols, float eps) {
  return 1.0F / sqrtf(squares / static_cast<float>(cols) + eps);
}

__device__ inline float4 normed(const float4& v, const float4& w, float factor) {
  return make_float4(v.x * factor * w.x, v.y * factor * w.y, v.z * factor * w.z, v.w * factor * w.w);
}

#endif

}  // namespace vernier::cuda
