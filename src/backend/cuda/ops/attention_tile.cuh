// Which queries a block of attend_mma has, and which cells of the cache its warps read for them.
#pragma once

#include "backend/cuda/ops/attention_state.cuh"
#include "backend/cuda/ops/math.cuh"
#include "backend/cuda/ops/prefetch.cuh"

namespace vernier::cuda {

constexpr int kRunKeys = 32;  ///< keys that a warp takes at a time

/// The query rows of a block: rows [first_query, first_query + kRows) of the slice's tokens * group, token-major.
struct Tile {
  DeviceSlice slice;
  std::int32_t kv_head;
  std::int32_t group;
  std::int32_t first_query;
  std::int32_t num_queries;  ///< in the slice
  KeyRange keys;             ///< that some row of the tile sees

  __device__ bool holds(std::int32_t row) const { return first_query + row < num_queries; }
  /// Rows of the block's that hold a query: the first ones.
  __device__ std::int32_t rows(std::int32_t most) const { return min(most, num_queries - first_query); }
  __device__ std::int32_t token(std::int32_t row) const { return (first_query + row) / group; }
  __device__ std::int32_t head(std::int32_t row) const { return kv_head * group + (first_query + row) % group; }
  __device__ std::int64_t matrix_row(std::int32_t row) const { return std::int64_t{slice.first_row} + token(row); }
};

template <int kRows>
__device__ Tile make_tile(const AttentionKernelArgs& args, std::int32_t slice_index, std::int32_t tile_index) {
  Tile tile = {};
  tile.slice = args.step.slices[slice_index];
  tile.kv_head = static_cast<std::int32_t>(blockIdx.y);
  tile.group = args.num_heads / args.kv.num_kv_heads;
  tile.first_query = tile_index * kRows;
  tile.num_queries = tile.slice.num_tokens * tile.group;
  if (tile.first_query >= tile.num_queries) return tile;
  const std::int32_t last = min(tile.first_query + kRows, tile.num_queries) - 1 - tile.first_query;
  tile.keys.first = visible_keys(args, tile.slice.past + tile.token(0)).first;
  tile.keys.end = visible_keys(args, tile.slice.past + tile.token(last)).end;
  return tile;
}

/// The cell (row of keys and of values) of the lane's key in the run that begins at `begin`. Keys that no row sees may
/// lie in pages that don't exist: a neighbour's numbers stand in, with weight 0.
__device__ inline std::int32_t cell_of_run(const AttentionKernelArgs& args, const Tile& tile, std::int32_t begin) {
  const std::int32_t lane = static_cast<std::int32_t>(threadIdx.x) % kWarpSize;
  const std::int32_t position = min(max(begin + lane, tile.keys.first), tile.keys.end - 1);
  return static_cast<std::int32_t>(kv_index(args.kv, args.step, tile.slice, position, tile.kv_head) / args.kv.head_dim);
}

/// Asks for this warp's keys and values of a split.
template <class Cell, int kDim>
__device__ void prefetch_split(const AttentionKernelArgs& args, const Tile& tile, std::int32_t split) {
  constexpr int kBytes = kDim * static_cast<int>(sizeof(typename Cell::Code));
  const auto warp = static_cast<std::int32_t>(threadIdx.x) / kWarpSize;
#pragma unroll 1
  for (std::int32_t at = warp * kRunKeys; at < kSplitKeys; at += kAttentionWarps * kRunKeys) {
    const std::int32_t begin = split * kSplitKeys + at;
    if (begin >= tile.keys.end || begin + kRunKeys <= tile.keys.first) continue;
    const std::int64_t first = std::int64_t{cell_of_run(args, tile, begin)} * kDim;
    prefetch_to_l2<kBytes>(static_cast<const typename Cell::Code*>(args.kv.keys) + first);
    prefetch_to_l2<kBytes>(static_cast<const typename Cell::Code*>(args.kv.values) + first);
  }
}

}  // namespace vernier::cuda
