// The query rows of a block of attend_wide_head: what its lanes hold of them, how queries come in and results go out.
#pragma once

#include "backend/cuda/ops/attention_wide_head.cuh"

namespace vernier::cuda {

/// What a lane holds: of row tile i the rows lane / 4 and lane / 4 + 8, of the warp's 64 dimensions column tile n
/// number n of each eight neighbours.
template <class Shape>
struct Lane {
  float out[Shape::kRowTiles][8][4];   ///< of the split
  float sums[Shape::kRowTiles][8][4];  ///< of all splits before
  SoftmaxState split[Shape::kRowTiles][2];
  SoftmaxState running[Shape::kRowTiles][2];
  KeyRange keys[2];  ///< of the rows that the warp scores
};

__device__ inline int warp_index() { return static_cast<int>(threadIdx.x) / kWarpSize; }
__device__ inline int lane_index() { return static_cast<int>(threadIdx.x) % kWarpSize; }

template <class Shape>
__device__ void reset_split(Lane<Shape>& state) {
#pragma unroll
  for (int i = 0; i < Shape::kRowTiles; ++i) {
#pragma unroll
    for (int n = 0; n < 8; ++n) {
#pragma unroll
      for (int c = 0; c < 4; ++c) state.out[i][n][c] = 0.0F;
    }
    state.split[i][0] = state.split[i][1] = empty_state();
  }
}

template <class Shape>
__device__ void reset(const WideShared<Shape>& shared, Lane<Shape>& state) {
  reset_split(state);
#pragma unroll
  for (int i = 0; i < Shape::kRowTiles; ++i) {
#pragma unroll
    for (int n = 0; n < 8; ++n) {
#pragma unroll
      for (int c = 0; c < 4; ++c) state.sums[i][n][c] = 0.0F;
    }
    state.running[i][0] = state.running[i][1] = empty_state();
  }
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    state.keys[h] = shared.rows[warp_index() % Shape::kRowTiles * 16 + lane_index() / 4 + 8 * h].keys;
  }
}

__device__ inline void store_four(float* to, const float4& four, bool is_aligned) {
  if (is_aligned) {
    *reinterpret_cast<float4*>(to) = four;
  } else {
    to[0] = four.x;
    to[1] = four.y;
    to[2] = four.z;
    to[3] = four.w;
  }
}

template <class Shape>
__device__ void find_rows(const AttentionKernelArgs& args, const Tile& tile, WideShared<Shape>& shared) {
  const auto row = static_cast<std::int32_t>(threadIdx.x);
  if (row >= Shape::kRows) return;
  WideRow found = {0, -1, {0, 0}};
  if (tile.holds(row)) {
    found = {static_cast<std::int32_t>(tile.matrix_row(row)), tile.head(row),
             visible_keys(args, tile.slice.past + tile.token(row))};
  }
  shared.rows[row] = found;
}

/// The tile's queries as bf16 terms, in the order in which lanes take them.
template <class Shape>
__device__ void load_queries(const AttentionKernelArgs& args, WideShared<Shape>& shared) {
  const int lane = lane_index();
  const std::int32_t dim = args.kv.head_dim;
  const bool is_aligned = has_aligned_fours(args.q);
#pragma unroll 4
  for (int item = warp_index(); item < Shape::kRowTiles * Shape::kDim / 16; item += Shape::kWarps) {
    const int row_tile = item / (Shape::kDim / 16);
    const int step = item % (Shape::kDim / 16);
    const int d = step / 2 * 32 + lane % 4 * 8 + step % 2 * 4;
    float4 values[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const WideRow row = shared.rows[row_tile * 16 + lane / 4 + 8 * h];
      values[h] = make_float4(0.0F, 0.0F, 0.0F, 0.0F);
      if (row.head < 0 || d >= dim) continue;
      values[h] = load_four(args.q.data + row.matrix_row * args.q.stride + row.head * dim + d, is_aligned);
    }
#pragma unroll
    for (int term = 0; term < Shape::kQueryTerms; ++term) {
      uint4& to = shared.query[row_tile][step][term][lane];
      to.x = take_term(values[0].x, values[0].y);
      to.y = take_term(values[1].x, values[1].y);
      to.z = take_term(values[0].z, values[0].w);
      to.w = take_term(values[1].z, values[1].w);
    }
  }
}

/// The lane's numbers of row `h`, times a factor, to a row of `dim`.
__device__ inline void store_row(float* to, std::int32_t dim, const float (&from)[8][4], int h, float factor,
                                 bool is_aligned) {
#pragma unroll
  for (int c = 0; c < 2; ++c) {
    const int d = warp_index() * 64 + (lane_index() % 4 * 2 + c) * 8;
    if (d >= dim) continue;
#pragma unroll
    for (int n = 0; n < 8; n += 4) {
      const int at = 2 * h + c;
      const float4 four = make_float4(__fmul_rn(from[n][at], factor), __fmul_rn(from[n + 1][at], factor),
                                      __fmul_rn(from[n + 2][at], factor), __fmul_rn(from[n + 3][at], factor));
      store_four(to + d + n, four, is_aligned);
    }
  }
}

template <class Shape>
__device__ void write_partials(const AttentionKernelArgs& args, const WideShared<Shape>& shared, std::int32_t split,
                               const Lane<Shape>& state) {
  const int lane = lane_index();
  const std::int32_t dim = args.kv.head_dim;
#pragma unroll
  for (int i = 0; i < Shape::kRowTiles * 2; ++i) {
    const int h = i % 2;
    const WideRow row = shared.rows[i / 2 * 16 + lane / 4 + 8 * h];
    if (row.head < 0) continue;
    float* const to = partial_of(args, row.matrix_row, row.head, split);
    if (warp_index() == 0 && lane % 4 == 0) {
      to[dim] = state.split[i / 2][h].largest;
      to[dim + 1] = state.split[i / 2][h].total;
    }
    store_row(to, dim, state.out[i / 2], h, 1.0F, true);
  }
}

template <class Shape>
__device__ void write_result(const AttentionKernelArgs& args, const WideShared<Shape>& shared,
                             const Lane<Shape>& state) {
  const int lane = lane_index();
  const std::int32_t dim = args.kv.head_dim;
  const bool is_aligned = has_aligned_fours(args.y);
#pragma unroll
  for (int i = 0; i < Shape::kRowTiles * 2; ++i) {
    const int h = i % 2;
    const WideRow row = shared.rows[i / 2 * 16 + lane / 4 + 8 * h];
    if (row.head < 0) continue;
    const float factor = finish(args, row.head, state.running[i / 2][h]);
    float* const to = args.y.data + row.matrix_row * args.y.stride + row.head * dim;
    store_row(to, dim, state.sums[i / 2], h, factor, is_aligned);
  }
}

/// y of the tile's rows from the partial states of all splits.
template <int kThreads>
__device__ void fold_tile(const AttentionKernelArgs& args, const Tile& tile, int rows) {
  constexpr int kWidth = 4;
  const int row_fours = args.kv.head_dim / kWidth;
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x); i < tile.rows(rows) * row_fours; i += kThreads) {
    const int row = i / row_fours;
    const int d = i % row_fours * kWidth;
    const std::int64_t matrix_row = tile.matrix_row(row);
    const KeyRange keys = visible_keys(args, tile.slice.past + tile.token(row));
    const Neighbours<kWidth> result = fold_splits<kWidth>(args, matrix_row, tile.head(row), d, keys);
    float* const to = args.y.data + matrix_row * args.y.stride + std::int64_t{tile.head(row)} * args.kv.head_dim + d;
#pragma unroll
    for (int k = 0; k < kWidth; ++k) to[k] = result.value[k];
  }
}

}  // namespace vernier::cuda
