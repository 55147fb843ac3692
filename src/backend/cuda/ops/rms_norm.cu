// RMS norm of rows, with the residual's addition in the same pass, to fp32 or to the bf16 terms that products read, in
// rows or in tiles. One block a row; the row stays in registers between the two passes where it is short enough.
#include <algorithm>

#include "backend/cuda/linear/narrow_input.cuh"
#include "backend/cuda/linear/narrow_ring.h"
#include "backend/cuda/linear/tiled_input.h"
#include "backend/cuda/ops/launch.h"
#include "backend/cuda/ops/math.cuh"
#include "backend/cuda/ops/norm_row.cuh"
#include "backend/cuda/ops/ops.h"

namespace vernier::cuda {
namespace {

constexpr int kHeld = kNormFours;
constexpr unsigned kMostThreads = kMostNormThreads;

struct NormRows {
  MatrixView x = {};
  MatrixView y = {};
  NormedRows rounded = {};                 ///< instead of y
  std::int64_t padded = 0;                 ///< where rounded columns end
  std::int64_t chunk_stride = kChunkCols;  ///< of a rounded row
  TiledInput tiled = {};                   ///< instead of both, without a residual
  MatrixView residual = {};                ///< data null: none
  const float* weight = nullptr;           ///< null: ones
  float eps = 0.0F;
};

/// Four columns from `col` on, zeros beyond the last. kAligned: the row is whole fours at multiples of 16 bytes.
template <bool kAligned>
__device__ float4 load_four(const float* row, std::int64_t col, std::int64_t dim) {
  if constexpr (kAligned) {
    return col < dim ? *reinterpret_cast<const float4*>(row + col) : make_float4(0.0F, 0.0F, 0.0F, 0.0F);
  }
  return make_float4(col < dim ? row[col] : 0.0F, col + 1 < dim ? row[col + 1] : 0.0F,
                     col + 2 < dim ? row[col + 2] : 0.0F, col + 3 < dim ? row[col + 3] : 0.0F);
}

template <bool kAligned>
__device__ void store_four(float* row, std::int64_t col, std::int64_t dim, float4 value) {
  if constexpr (kAligned) {
    if (col < dim) *reinterpret_cast<float4*>(row + col) = value;
    return;
  }
  if (col < dim) row[col] = value.x;
  if (col + 1 < dim) row[col + 1] = value.y;
  if (col + 2 < dim) row[col + 2] = value.z;
  if (col + 3 < dim) row[col + 3] = value.w;
}

/// What the kernel does with four columns of its row.
template <bool kAligned, bool kRounds>
struct Row {
  float* x;
  float* y;
  std::uint16_t* rounded;
  std::int64_t rounded_stride;
  std::int64_t chunk_stride;
  std::int64_t padded;
  int terms;
  const float* residual;
  const float* weight;
  std::int64_t dim;

  __device__ float4 weights(std::int64_t at) const {
    return weight != nullptr ? load_four<kAligned>(weight, at, dim) : make_float4(1.0F, 1.0F, 1.0F, 1.0F);
  }
  __device__ float4 take(std::int64_t at) const {
    float4 value = load_four<kAligned>(x, at, dim);
    if (residual != nullptr) {
      const float4 more = load_four<kAligned>(residual, at, dim);
      value = make_float4(value.x + more.x, value.y + more.y, value.z + more.z, value.w + more.w);
      store_four<kAligned>(x, at, dim, value);
    }
    return value;
  }
  __device__ void put(std::int64_t at, float4 v, float4 w, float factor) const {
    const float4 result = normed(v, w, factor);
    if constexpr (kRounds) {
      std::uint16_t* const to = rounded + at / kChunkCols * chunk_stride + at % kChunkCols;
      if (at < padded) store_columns(to, static_cast<int>(rounded_stride), terms, result);
    } else {
      store_four<kAligned>(y, at, dim, result);
    }
  }
  /// Where the columns end that are written.
  __device__ std::int64_t end() const { return kRounds ? padded : dim; }
};

/// Few threads and registers, so that it fits beside the blocks of the kernels before and behind it, and little code,
/// which a decode step fetches anew in every layer.
template <bool kAligned, bool kRounds>
__global__ void __launch_bounds__(kMostThreads, 2) rms_norm_kernel(const __grid_constant__ NormRows rows) {
  release_successor();
  __shared__ float partial[kWarpSize];
  const std::int64_t index = blockIdx.x;
  const std::int64_t first = std::int64_t{threadIdx.x} * 4;
  const std::int64_t step = std::int64_t{blockDim.x} * 4;
  const NormedRows& rounded = rows.rounded;
  const Row<kAligned, kRounds> row = {
      rows.x.data + index * rows.x.stride,
      rows.y.data + index * rows.y.stride,
      rounded.data + index * rounded.terms * rounded.stride,
      rounded.stride,
      rows.chunk_stride,
      rows.padded,
      rounded.terms,
      rows.residual.data != nullptr ? rows.residual.data + index * rows.residual.stride : nullptr,
      rows.weight,
      rows.x.cols};
  float4 weight[kHeld];  // no kernel writes it: on its way before there is input
#pragma unroll
  for (int i = 0; i < kHeld; ++i) weight[i] = row.weights(first + i * step);
  wait_for_predecessor();
  float4 held[kHeld];
  float squares = 0.0F;
#pragma unroll
  for (int i = 0; i < kHeld; ++i) held[i] = row.take(first + i * step);
#pragma unroll
  for (int i = 0; i < kHeld; ++i) squares += squares_of(held[i]);
#pragma unroll 1
  for (std::int64_t at = first + kHeld * step; at < row.dim; at += step) squares += squares_of(row.take(at));
  const float sum = block_sum(squares, partial, static_cast<int>(blockDim.x) / kWarpSize);
  const float factor = norm_factor(sum, row.dim, rows.eps);
#pragma unroll
  for (int i = 0; i < kHeld; ++i) row.put(first + i * step, held[i], weight[i], factor);
#pragma unroll 1
  for (std::int64_t at = first + kHeld * step; at < row.end(); at += step) {
    row.put(at, load_four<kAligned>(row.x, at, row.dim), row.weights(at), factor);
  }
}

/// Two columns of a row into its tile at `at`, and into those of its other terms.
__device__ __forceinline__ void store_pair(const TiledInput& to, std::byte* at, float low, float high) {
  if (to.terms == 1) {
    *reinterpret_cast<std::uint32_t*>(at) = round_pair(low, high);
    return;
  }
  const Bf16Terms split[2] = {split_terms(low), split_terms(high)};
#pragma unroll
  for (int term = 0; term < 3; ++term) {
    *reinterpret_cast<std::uint32_t*>(at + std::int64_t{term} * to.units * kTileBytes) =
        pack_upper_halves(split[0].term[term], split[1].term[term]);
  }
}

/// The same into tiles, of many rows: a block takes one after the other, the next on its way while it is at one. The
/// sums are those of rms_norm_kernel, in their order.
template <bool kAligned>
__global__ void __launch_bounds__(kMostThreads, 2) tiled_norm_kernel(const __grid_constant__ NormRows rows) {
  release_successor();
  __shared__ float partial[2][kWarpSize];
  const TiledInput& to = rows.tiled;
  const int dim = static_cast<int>(rows.x.cols);
  const int first = static_cast<int>(threadIdx.x) * 4;
  const int step = static_cast<int>(blockDim.x) * 4;  // whole units
  const int place = first / kUnitCols * kTileBytes + tiled_offset(0, first % kUnitCols);
  const std::int64_t stride = rows.x.stride * gridDim.x;
  const float* x = rows.x.data + blockIdx.x * rows.x.stride;
  wait_for_predecessor();
  float4 held[kHeld];
#pragma unroll
  for (int i = 0; i < kHeld; ++i) held[i] = load_four<kAligned>(x, first + i * step, dim);
  int turn = 0;
  for (auto index = static_cast<int>(blockIdx.x); index < static_cast<int>(rows.x.rows); turn ^= 1) {
    float squares = 0.0F;
#pragma unroll
    for (int i = 0; i < kHeld; ++i) squares += squares_of(held[i]);
#pragma unroll 1
    for (int at = first + kHeld * step; at < dim; at += step) squares += squares_of(load_four<kAligned>(x, at, dim));
    const int next_index = index + static_cast<int>(gridDim.x);
    float4 next[kHeld] = {};
    if (next_index < static_cast<int>(rows.x.rows)) {
#pragma unroll
      for (int i = 0; i < kHeld; ++i) next[i] = load_four<kAligned>(x + stride, first + i * step, dim);
    }
    const float sum = block_sum(squares, partial[turn], static_cast<int>(blockDim.x) / kWarpSize);
    const float factor = norm_factor(sum, dim, rows.eps);
    const int row = index % kBlockTokens;
    std::byte* const tile = to.tile(index / kBlockTokens * to.terms, 0);
    const int low = row * 128 + (place ^ row % 8 * 16);  // as tiled_offset() has it
    const auto put = [&](int i, const float4& v) __attribute__((always_inline)) {
      const int at = first + i * step;
      if (at >= to.units * kUnitCols) return;
      const float4 result = normed(v, load_four<kAligned>(rows.weight, at, dim), factor);
      std::byte* const from = tile + i * (step / kUnitCols) * kTileBytes;
      store_pair(to, from + low, result.x, result.y);
      store_pair(to, from + (low ^ 16), result.z, result.w);
    };
#pragma unroll
    for (int i = 0; i < kHeld; ++i) put(i, held[i]);
#pragma unroll 1
    for (int i = kHeld; first + i * step < to.units * kUnitCols; ++i) {
      put(i, load_four<kAligned>(x, first + i * step, dim));
    }
    index = next_index;
    x += stride;
#pragma unroll
    for (int i = 0; i < kHeld; ++i) held[i] = next[i];
  }
}

bool is_aligned(const void* data, std::int64_t stride) {
  return stride % 4 == 0 && reinterpret_cast<std::uintptr_t>(data) % 16 == 0;
}

LaunchShape shape_of(const MatrixView& x) { return {dim3(static_cast<unsigned>(x.rows)), dim3(norm_threads(x.cols))}; }

bool is_aligned(const NormRows& rows) {
  return rows.x.cols % 4 == 0 && is_aligned(rows.x.data, rows.x.stride) && is_aligned(rows.y.data, rows.y.stride) &&
         is_aligned(rows.residual.data, rows.residual.stride) && is_aligned(rows.weight, 0);
}

Status launch_rounding(CudaContext& context, const NormRows& rows) {
  return is_aligned(rows) ? launch(context, shape_of(rows.x), rms_norm_kernel<true, true>, rows)
                          : launch(context, shape_of(rows.x), rms_norm_kernel<false, true>, rows);
}

}  // namespace

Status rms_norm(CudaContext& context, const RmsNormArgs& args) {
  NormRows rows = {.x = args.x, .y = args.y};
  if (args.residual != nullptr) rows.residual = *args.residual;
  rows.weight = args.weight.empty() ? nullptr : args.weight.data();
  rows.eps = args.eps;
  return is_aligned(rows) ? launch(context, shape_of(rows.x), rms_norm_kernel<true, false>, rows)
                          : launch(context, shape_of(rows.x), rms_norm_kernel<false, false>, rows);
}

Status norm_and_round(CudaContext& context, const MatrixView& x, const RowNorm& norm, const NormedRows& to) {
  return launch_rounding(context, {.x = x, .rounded = to, .padded = to.stride, .weight = norm.weight, .eps = norm.eps});
}

Status norm_and_round_chunks(CudaContext& context, const MatrixView& x, const RowNorm& norm, int terms,
                             std::uint16_t* to) {
  return launch_rounding(context, {.x = x,
                                   .rounded = {to, kRingStride, terms},
                                   .padded = (x.cols + kUnitCols - 1) / kUnitCols * kUnitCols,
                                   .chunk_stride = x.rows * terms * kRingStride,
                                   .weight = norm.weight,
                                   .eps = norm.eps});
}

Status norm_and_tile(CudaContext& context, const MatrixView& x, const RowNorm& norm, const TiledInput& to) {
  const NormRows rows = {.x = x, .tiled = to, .weight = norm.weight, .eps = norm.eps};
  constexpr unsigned kThreadsAtOnce = 1024;  // of a multiprocessor
  LaunchShape shape = shape_of(x);
  shape.grid.x = std::min(shape.grid.x, static_cast<unsigned>(context.num_sms) * (kThreadsAtOnce / shape.block.x));
  return is_aligned(rows) ? launch(context, shape, tiled_norm_kernel<true>, rows)
                          : launch(context, shape, tiled_norm_kernel<false>, rows);
}

}  // namespace vernier::cuda
