// Which queries a block on tensor cores has, and how keys and values for them come into shared memory.
#pragma once

#include "backend/cuda/ops/attention_fragment.cuh"
#include "backend/cuda/ops/attention_state.cuh"
#include "backend/cuda/ops/math.cuh"
#include "backend/cuda/ops/prefetch.cuh"

namespace vernier::cuda {

/// The query rows of a block: rows [first_query, first_query + kRows) of the slice's tokens * group, token-major.
struct Tile {
  DeviceSlice slice;
  std::int32_t kv_head;
  std::int32_t group;
  std::int32_t first_query;
  std::int32_t num_queries;  ///< in the slice
  KeyRange keys;             ///< that some row of the tile sees
  KeyRange common;           ///< that every row sees

  __device__ bool holds(std::int32_t row) const { return first_query + row < num_queries; }
  /// Rows of the block's that hold a query: the first ones.
  __device__ std::int32_t rows(std::int32_t most) const { return min(most, num_queries - first_query); }
  __device__ std::int32_t token(std::int32_t row) const { return (first_query + row) / group; }
  __device__ std::int32_t head(std::int32_t row) const { return kv_head * group + (first_query + row) % group; }
  __device__ std::int64_t matrix_row(std::int32_t row) const { return std::int64_t{slice.first_row} + token(row); }
  __device__ bool is_idle() const { return first_query >= num_queries; }
  __device__ std::int32_t first_split() const { return keys.first / kSplitKeys; }
  __device__ std::int32_t last_split() const { return (keys.end - 1) / kSplitKeys; }
};

/// Tile number `index` of `rows` rows; one without queries where the slice has none or isn't the kernel's.
__device__ inline Tile make_tile(const AttentionKernelArgs& args, std::int32_t slice_index, std::int32_t kv_head,
                                 std::int32_t rows, std::int32_t index) {
  Tile tile = {};
  tile.slice = args.step.slices[slice_index];
  tile.kv_head = kv_head;
  tile.group = args.num_heads / args.kv.num_kv_heads;
  tile.first_query = index * rows;
  if (args.takes(tile.slice)) tile.num_queries = tile.slice.num_tokens * tile.group;
  if (tile.is_idle()) return tile;
  const std::int32_t last = min(tile.first_query + rows, tile.num_queries) - 1 - tile.first_query;
  const KeyRange early = visible_keys(args, tile.slice.past + tile.token(0));
  const KeyRange late = visible_keys(args, tile.slice.past + tile.token(last));
  tile.keys = {early.first, late.end};
  tile.common = {late.first, early.end};
  return tile;
}

/// The cell (row of keys and of values) of a position; -1: no row sees it.
__device__ inline std::int32_t cell_of(const AttentionKernelArgs& args, const Tile& tile, std::int32_t position) {
  if (position < tile.keys.first || position >= tile.keys.end) return -1;
  return static_cast<std::int32_t>(kv_index(args.kv, args.step, tile.slice, position, tile.kv_head) / args.kv.head_dim);
}

/// Asks for the warp's share of the keys and values of a split.
template <class Cell, int kDim>
__device__ void prefetch_split(const AttentionKernelArgs& args, const Tile& tile, std::int32_t split) {
  constexpr int kBytes = kDim * static_cast<int>(sizeof(typename Cell::Code));
  const auto warp = static_cast<std::int32_t>(threadIdx.x) / kWarpSize;
  const std::int32_t lane = static_cast<std::int32_t>(threadIdx.x) % kWarpSize;
  const std::int32_t cell = cell_of(args, tile, split * kSplitKeys + warp * kWarpSize + lane);
  if (warp >= kSplitKeys / kWarpSize || cell < 0) return;
  const std::int64_t first = std::int64_t{cell} * kDim;
  prefetch_to_l2<kBytes>(static_cast<const typename Cell::Code*>(args.kv.keys) + first);
  prefetch_to_l2<kBytes>(static_cast<const typename Cell::Code*>(args.kv.values) + first);
}

/// Whether each four numbers of a row can be read or written at once.
__device__ inline bool has_aligned_fours(const MatrixView& matrix) {
  return matrix.stride % 4 == 0 && reinterpret_cast<std::uintptr_t>(matrix.data) % sizeof(float4) == 0;
}

__device__ inline float4 load_four(const float* from, bool is_aligned) {
  if (is_aligned) return *reinterpret_cast<const float4*>(from);
  return make_float4(from[0], from[1], from[2], from[3]);
}

__device__ inline void store_two(float* to, float first, float second, bool is_aligned) {
  if (is_aligned) {
    *reinterpret_cast<float2*>(to) = {first, second};
  } else {
    to[0] = first;
    to[1] = second;
  }
}

/// Where piece `piece` (8 numbers) of a row lies in a tile of kRows rows of bf16: 64 columns of all rows, then the next
/// 64; the pieces of 128 bytes are permuted, so that neither a row nor a column of pieces meets a bank twice.
template <int kRows>
__device__ __forceinline__ int piece_offset(int row, int piece) {
  return (piece / 8 * kRows + row) * 128 + (piece % 8 ^ row % 8) * 16;
}

/// 16 bytes from the cache to shared memory, some time later; zeros where nobody sees the key.
__device__ __forceinline__ void copy_piece(std::uint32_t to, const BF16Cell::Code* from, bool is_seen) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n" ::"r"(to), "l"(from), "r"(is_seen ? 16 : 0)
               : "memory");
}
__device__ __forceinline__ void copy_piece(std::uint32_t to, const E4M3Cell::Code* from, bool is_seen) {
  Eight eight = {};
  if (is_seen) eight = load_eight(from);
  asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};\n" ::"r"(to), "r"(eight.pairs[0]), "r"(eight.pairs[1]),
               "r"(eight.pairs[2]), "r"(eight.pairs[3])
               : "memory");
}

/// The warp's kCount rows of a tile of kRows, from row `first` on; lane l knows the cell of row first + l (-1: zeros).
template <class Cell, int kDim, int kRows, int kCount>
__device__ __forceinline__ void copy_rows(const void* codes, std::int32_t cell, std::uint32_t tile, int first) {
  constexpr int kPieces = kDim / 8;
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
#pragma unroll 8
  for (int i = 0; i < kCount * kPieces / kWarpSize; ++i) {
    const int item = i * kWarpSize + lane;
    const int row = item / kPieces;
    const std::int32_t own = __shfl_sync(kWholeWarp, cell, row);
    const auto* const code = static_cast<const typename Cell::Code*>(codes) + std::int64_t{max(own, 0)} * kDim;
    const int piece = item % kPieces;
    copy_piece(tile + piece_offset<kRows>(first + row, piece), code + piece * 8, own >= 0);
  }
}

}  // namespace vernier::cuda
