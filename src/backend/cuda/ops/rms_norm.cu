// RMS norm of rows, with the residual's addition in the same pass, to fp32 or to the bf16 terms that products read, in
// rows or in tiles. One block a row; the row stays in registers between the two passes where it is short enough.
#include <algorithm>

#include "backend/cuda/linear/narrow_input.cuh"
#include "backend/cuda/linear/tiled_input.h"
#include "backend/cuda/ops/launch.h"
#include "backend/cuda/ops/math.cuh"
#include "backend/cuda/ops/ops.h"

namespace vernier::cuda {
namespace {

constexpr int kHeld = 4;  ///< fours of columns that a thread keeps
constexpr unsigned kMostThreads = 512;

/// Where the normed rows go.
enum class NormTo : std::uint8_t { kFloats, kTerms, kTiles };

struct NormRows {
  MatrixView x = {};
  MatrixView y = {};              ///< kFloats
  NormedRows rounded = {};        ///< kTerms
  TiledInput tiled = {};          ///< kTiles
  MatrixView residual = {};       ///< data null: none
  const float* weight = nullptr;  ///< null: ones
  float eps = 0.0F;
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

/// Two columns of a row of 32 into its first tile and those of its other terms.
__device__ void store_pair(const TiledInput& to, std::byte* at, float low, float high) {
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

/// Four columns of row `index` into tiles, `at` being a multiple of four.
__device__ void store_tiled(const TiledInput& to, std::int64_t index, std::int64_t at, float4 value) {
  const int row = static_cast<int>(index % kBlockTokens);
  const int col = static_cast<int>(at % kUnitCols);
  std::byte* const tile = to.tile(index / kBlockTokens * to.terms, static_cast<int>(at / kUnitCols));
  store_pair(to, tile + tiled_offset(row, col), value.x, value.y);
  store_pair(to, tile + tiled_offset(row, col + 2), value.z, value.w);
}

/// What the kernel does with four columns of its row.
template <bool kAligned, NormTo kTo>
struct Row {
  const NormRows* rows;
  std::int64_t index;
  float* x;
  float* y;
  std::uint16_t* rounded;
  std::int64_t rounded_stride;
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
    const float4 result = make_float4(v.x * factor * w.x, v.y * factor * w.y, v.z * factor * w.z, v.w * factor * w.w);
    if constexpr (kTo == NormTo::kTerms) {
      if (at < rounded_stride) store_columns(rounded + at, static_cast<int>(rounded_stride), terms, result);
    } else if constexpr (kTo == NormTo::kTiles) {
      if (at < end()) store_tiled(rows->tiled, index, at, result);
    } else {
      store_four<kAligned>(y, at, dim, result);
    }
  }
  /// Where the columns end that are written.
  __device__ std::int64_t end() const {
    if constexpr (kTo == NormTo::kTiles) return std::int64_t{rows->tiled.units} * kUnitCols;
    return kTo == NormTo::kTerms ? rounded_stride : dim;
  }
};

__device__ float squares_of(float4 v) { return v.x * v.x + v.y * v.y + (v.z * v.z + v.w * v.w); }

template <bool kAligned, NormTo kTo>
__device__ Row<kAligned, kTo> row_of(const NormRows& rows, std::int64_t index) {
  const NormedRows& rounded = rows.rounded;
  return {&rows,
          index,
          rows.x.data + index * rows.x.stride,
          rows.y.data + index * rows.y.stride,
          rounded.data + index * rounded.terms * rounded.stride,
          rounded.stride,
          rounded.terms,
          rows.residual.data != nullptr ? rows.residual.data + index * rows.residual.stride : nullptr,
          rows.weight,
          rows.x.cols};
}

/// Few threads and registers, so that it fits beside the blocks of the kernels before and behind it, and little code,
/// which a decode step fetches anew in every layer. A block takes one row, or of tiles, of which there are many, one
/// after the other, the next on its way while it is at one.
template <bool kAligned, NormTo kTo>
__global__ void __launch_bounds__(kMostThreads, 2) rms_norm_kernel(const __grid_constant__ NormRows rows) {
  release_successor();
  __shared__ float partial[2][kWarpSize];
  const std::int64_t first = std::int64_t{threadIdx.x} * 4;
  const std::int64_t step = std::int64_t{blockDim.x} * 4;
  std::int64_t index = blockIdx.x;
  Row<kAligned, kTo> row = row_of<kAligned, kTo>(rows, index);
  constexpr bool kHoldsWeight = kTo != NormTo::kTiles;  // else its registers are the next row's
  [[maybe_unused]] float4 weight[kHeld];                // no kernel writes it: on its way before there is input
  if constexpr (kHoldsWeight) {
#pragma unroll
    for (int i = 0; i < kHeld; ++i) weight[i] = row.weights(first + i * step);
  }
  wait_for_predecessor();
  float4 held[kHeld];
#pragma unroll
  for (int i = 0; i < kHeld; ++i) held[i] = row.take(first + i * step);
  for (int turn = 0;; turn ^= 1) {
    float squares = 0.0F;
#pragma unroll
    for (int i = 0; i < kHeld; ++i) squares += squares_of(held[i]);
#pragma unroll 1
    for (std::int64_t at = first + kHeld * step; at < row.dim; at += step) squares += squares_of(row.take(at));
    [[maybe_unused]] float4 next[kHeld];
    if constexpr (kTo == NormTo::kTiles) {
      index += gridDim.x;
      if (index < rows.x.rows) {
        const Row<kAligned, kTo> coming = row_of<kAligned, kTo>(rows, index);
#pragma unroll
        for (int i = 0; i < kHeld; ++i) next[i] = coming.take(first + i * step);
      }
    }
    const float mean = block_sum(squares, partial[turn]) / static_cast<float>(row.dim);
    const float factor = 1.0F / sqrtf(mean + rows.eps);
#pragma unroll
    for (int i = 0; i < kHeld; ++i) {
      row.put(first + i * step, held[i], kHoldsWeight ? weight[i] : row.weights(first + i * step), factor);
    }
#pragma unroll 1
    for (std::int64_t at = first + kHeld * step; at < row.end(); at += step) {
      row.put(at, load_four<kAligned>(row.x, at, row.dim), row.weights(at), factor);
    }
    if constexpr (kTo != NormTo::kTiles) return;
    if (index >= rows.x.rows) return;
    row = row_of<kAligned, kTo>(rows, index);
#pragma unroll
    for (int i = 0; i < kHeld; ++i) held[i] = next[i];
  }
}

bool is_aligned(const void* data, std::int64_t stride) {
  return stride % 4 == 0 && reinterpret_cast<std::uintptr_t>(data) % 16 == 0;
}

/// The block's size depends on the row's length alone, and so does the order of the sum.
LaunchShape shape_of(const MatrixView& x) {
  unsigned threads = kWarpSize;
  while (threads < kMostThreads && std::int64_t{threads} * 8 < x.cols) threads *= 2;
  return {dim3(static_cast<unsigned>(x.rows)), dim3(threads)};
}

bool is_aligned(const NormRows& rows) {
  return rows.x.cols % 4 == 0 && is_aligned(rows.x.data, rows.x.stride) && is_aligned(rows.y.data, rows.y.stride) &&
         is_aligned(rows.residual.data, rows.residual.stride) && is_aligned(rows.weight, 0);
}

template <NormTo kTo>
Status launch_norm(const CudaContext& context, const NormRows& rows) {
  LaunchShape shape = shape_of(rows.x);
  if constexpr (kTo == NormTo::kTiles) {
    constexpr unsigned kThreadsAtOnce = 1024;  // of a multiprocessor
    shape.grid.x = std::min(shape.grid.x, static_cast<unsigned>(context.num_sms) * (kThreadsAtOnce / shape.block.x));
  }
  return is_aligned(rows) ? launch(context, shape, rms_norm_kernel<true, kTo>, rows)
                          : launch(context, shape, rms_norm_kernel<false, kTo>, rows);
}

}  // namespace

Status rms_norm(CudaContext& context, const RmsNormArgs& args) {
  NormRows rows = {.x = args.x, .y = args.y};
  if (args.residual != nullptr) rows.residual = *args.residual;
  rows.weight = args.weight.empty() ? nullptr : args.weight.data();
  rows.eps = args.eps;
  return launch_norm<NormTo::kFloats>(context, rows);
}

Status norm_and_round(CudaContext& context, const MatrixView& x, const RowNorm& norm, const NormedRows& to) {
  return launch_norm<NormTo::kTerms>(context, {.x = x, .rounded = to, .weight = norm.weight, .eps = norm.eps});
}

Status norm_and_tile(CudaContext& context, const MatrixView& x, const RowNorm& norm, const TiledInput& to) {
  return launch_norm<NormTo::kTiles>(context, {.x = x, .tiled = to, .weight = norm.weight, .eps = norm.eps});
}

}  // namespace vernier::cuda
