// RMS norm of rows, with the residual's addition in the same pass. One block a row; the row stays in registers between
// the two passes where it is short enough.
#include "backend/cuda/ops/launch.h"
#include "backend/cuda/ops/math.cuh"
#include "backend/cuda/ops/ops.h"

namespace vernier::cuda {
namespace {

constexpr int kHeldPerThread = 16;

struct NormRows {
  MatrixView x;
  MatrixView y;
  MatrixView residual;  ///< data null: none
  const float* weight;  ///< null: ones
  float eps;
};

/// The sum over the block in every thread. `partial` holds a number a warp.
__device__ float block_sum(float value, float* partial) {
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const int num_warps = static_cast<int>(blockDim.x) / kWarpSize;
  value = warp_sum(value);
  if (num_warps == 1) return value;
  if (lane == 0) partial[warp] = value;
  __syncthreads();
  return warp_sum(lane < num_warps ? partial[lane] : 0.0F);
}

__global__ void __launch_bounds__(1024) rms_norm_kernel(NormRows rows) {
  release_successor();
  wait_for_predecessor();
  __shared__ float partial[kWarpSize];
  const std::int64_t row = blockIdx.x;
  float* const x = rows.x.data + row * rows.x.stride;
  float* const y = rows.y.data + row * rows.y.stride;
  const float* const residual =
      rows.residual.data != nullptr ? rows.residual.data + row * rows.residual.stride : nullptr;
  const std::int64_t dim = rows.x.cols;
  float held[kHeldPerThread];
  float weight[kHeldPerThread];  // asked for together with x: the sum's end is too late
  float squares = 0.0F;
#pragma unroll
  for (int i = 0; i < kHeldPerThread; ++i) {
    const std::int64_t at = threadIdx.x + std::int64_t{i} * blockDim.x;
    held[i] = 0.0F;
    weight[i] = 1.0F;
    if (at >= dim) continue;
    held[i] = x[at];
    if (rows.weight != nullptr) weight[i] = rows.weight[at];
    if (residual != nullptr) x[at] = held[i] += residual[at];
    squares += held[i] * held[i];
  }
  const std::int64_t held_end = std::int64_t{kHeldPerThread} * blockDim.x;
  for (std::int64_t at = held_end + threadIdx.x; at < dim; at += blockDim.x) {
    float value = x[at];
    if (residual != nullptr) x[at] = value += residual[at];
    squares += value * value;
  }
  const float mean = block_sum(squares, partial) / static_cast<float>(dim);
  const float factor = 1.0F / sqrtf(mean + rows.eps);
#pragma unroll
  for (int i = 0; i < kHeldPerThread; ++i) {
    const std::int64_t at = threadIdx.x + std::int64_t{i} * blockDim.x;
    if (at < dim) y[at] = held[i] * factor * weight[i];
  }
  for (std::int64_t at = held_end + threadIdx.x; at < dim; at += blockDim.x) {
    y[at] = x[at] * factor * (rows.weight != nullptr ? rows.weight[at] : 1.0F);
  }
}

}  // namespace

Status rms_norm(CudaContext& context, const RmsNormArgs& args) {
  const NormRows rows = {.x = args.x,
                         .y = args.y,
                         .residual = args.residual != nullptr ? *args.residual : MatrixView{},
                         .weight = args.weight.empty() ? nullptr : args.weight.data(),
                         .eps = args.eps};
  // The block's size depends on the row's length alone, and so does the order of the sum.
  unsigned threads = kWarpSize;
  while (threads < 1024 && std::int64_t{threads} * 4 < args.x.cols) threads *= 2;
  return launch(context, {dim3(static_cast<unsigned>(args.x.rows)), dim3(threads)}, rms_norm_kernel, rows);
}

}  // namespace vernier::cuda
