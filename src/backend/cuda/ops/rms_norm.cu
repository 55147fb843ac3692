// RMS norm of rows, with the residual's addition in the same pass. One block a row; the row stays in registers between
// the two passes where it is short enough.
#include "backend/cuda/ops/launch.h"
#include "backend/cuda/ops/math.cuh"
#include "backend/cuda/ops/ops.h"

namespace vernier::cuda {
namespace {

constexpr int kHeld = 4;  ///< fours of columns that a thread keeps
constexpr unsigned kMostThreads = 512;

struct NormRows {
  MatrixView x;
  MatrixView y;
  MatrixView residual;  ///< data null: none
  const float* weight;  ///< null: ones
  float eps;
  bool aligned;  ///< every row begins at a multiple of 16 bytes
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

/// Four columns from `col` on, zeros beyond the last.
__device__ float4 load_four(const float* row, std::int64_t col, std::int64_t dim, bool aligned) {
  if (aligned && col + 4 <= dim) return *reinterpret_cast<const float4*>(row + col);
  return make_float4(col < dim ? row[col] : 0.0F, col + 1 < dim ? row[col + 1] : 0.0F,
                     col + 2 < dim ? row[col + 2] : 0.0F, col + 3 < dim ? row[col + 3] : 0.0F);
}

__device__ void store_four(float* row, std::int64_t col, std::int64_t dim, bool aligned, float4 value) {
  if (aligned && col + 4 <= dim) {
    *reinterpret_cast<float4*>(row + col) = value;
    return;
  }
  if (col < dim) row[col] = value.x;
  if (col + 1 < dim) row[col + 1] = value.y;
  if (col + 2 < dim) row[col + 2] = value.z;
  if (col + 3 < dim) row[col + 3] = value.w;
}

/// Few threads and registers, so that it fits beside the blocks of the kernels before and behind it.
__global__ void __launch_bounds__(kMostThreads, 2) rms_norm_kernel(const __grid_constant__ NormRows rows) {
  release_successor();
  __shared__ float partial[kWarpSize];
  const std::int64_t row = blockIdx.x;
  const std::int64_t dim = rows.x.cols;
  const std::int64_t first = std::int64_t{threadIdx.x} * 4;
  const std::int64_t step = std::int64_t{blockDim.x} * 4;
  const bool aligned = rows.aligned;
  const auto weight_at = [&](std::int64_t at) {
    return rows.weight != nullptr ? load_four(rows.weight, at, dim, aligned) : make_float4(1.0F, 1.0F, 1.0F, 1.0F);
  };
  float4 weight[kHeld];  // no kernel writes it: on its way before there is input
#pragma unroll
  for (int i = 0; i < kHeld; ++i) weight[i] = weight_at(first + i * step);
  wait_for_predecessor();
  float* const x = rows.x.data + row * rows.x.stride;
  float* const y = rows.y.data + row * rows.y.stride;
  const float* const residual =
      rows.residual.data != nullptr ? rows.residual.data + row * rows.residual.stride : nullptr;
  float squares = 0.0F;
  const auto take = [&](std::int64_t at) {
    float4 value = load_four(x, at, dim, aligned);
    if (residual != nullptr) {
      const float4 more = load_four(residual, at, dim, aligned);
      value = make_float4(value.x + more.x, value.y + more.y, value.z + more.z, value.w + more.w);
      store_four(x, at, dim, aligned, value);
    }
    return value;
  };
  const auto add = [&](float4 v) { squares += v.x * v.x + v.y * v.y + (v.z * v.z + v.w * v.w); };
  float4 held[kHeld];
#pragma unroll
  for (int i = 0; i < kHeld; ++i) held[i] = take(first + i * step);
#pragma unroll
  for (int i = 0; i < kHeld; ++i) add(held[i]);
  for (std::int64_t at = first + kHeld * step; at < dim; at += step) add(take(at));
  const float mean = block_sum(squares, partial) / static_cast<float>(dim);
  const float factor = 1.0F / sqrtf(mean + rows.eps);
  const auto put = [&](std::int64_t at, float4 v, float4 w) {
    store_four(y, at, dim, aligned,
               make_float4(v.x * factor * w.x, v.y * factor * w.y, v.z * factor * w.z, v.w * factor * w.w));
  };
#pragma unroll
  for (int i = 0; i < kHeld; ++i) put(first + i * step, held[i], weight[i]);
  for (std::int64_t at = first + kHeld * step; at < dim; at += step) {
    put(at, load_four(x, at, dim, aligned), weight_at(at));
  }
}

bool is_aligned(const void* data, std::int64_t stride) {
  return stride % 4 == 0 && reinterpret_cast<std::uintptr_t>(data) % 16 == 0;
}

}  // namespace

Status rms_norm(CudaContext& context, const RmsNormArgs& args) {
  const MatrixView residual = args.residual != nullptr ? *args.residual : MatrixView{};
  const float* const weight = args.weight.empty() ? nullptr : args.weight.data();
  const NormRows rows = {.x = args.x,
                         .y = args.y,
                         .residual = residual,
                         .weight = weight,
                         .eps = args.eps,
                         .aligned = is_aligned(args.x.data, args.x.stride) && is_aligned(args.y.data, args.y.stride) &&
                                    is_aligned(residual.data, residual.stride) && is_aligned(weight, 0)};
  // The block's size depends on the row's length alone, and so does the order of the sum.
  unsigned threads = kWarpSize;
  while (threads < kMostThreads && std::int64_t{threads} * 8 < args.x.cols) threads *= 2;
  return launch(context, {dim3(static_cast<unsigned>(args.x.rows)), dim3(threads)}, rms_norm_kernel, rows);
}

}  // namespace vernier::cuda
