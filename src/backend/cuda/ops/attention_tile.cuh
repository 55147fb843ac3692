// Which queries a block on tensor cores has, and how keys and values for them come into shared memory.
#pragma once

#include "backend/cuda/ops/attention_fragment.cuh"
#include "backend/cuda/ops/attention_state.cuh"
#include "backend/cuda/ops/math.cuh"
#include "backend/cuda/ops/prefetch.cuh"

namespace vernier::cuda {

/// a / b of numbers that aren't negative, which is shorter.
__device__ __forceinline__ std::int32_t quotient(std::int32_t a, std::int32_t b) {
  return static_cast<std::int32_t>(static_cast<unsigned>(a) / static_cast<unsigned>(b));
}

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
  __device__ std::int32_t token(std::int32_t row) const {
    return num_queries == group ? 0 : quotient(first_query + row, group);  // one token: without a division
  }
  __device__ std::int32_t head(std::int32_t row) const {
    return kv_head * group + first_query + row - token(row) * group;
  }
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
  tile.group = quotient(args.num_heads, args.kv.num_kv_heads);
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

/// Where a key lies: its page may still be on its way from memory.
struct KeyPlace {
  std::int32_t page;
  std::int32_t at;  ///< in the page; -1: no row sees the key
};

__device__ __forceinline__ KeyPlace place_of(const AttentionKernelArgs& args, const Tile& tile, std::int32_t position) {
  if (position < tile.keys.first || position >= tile.keys.end) return {0, -1};
  const std::int32_t index = quotient(position, args.kv.page_size);
  return {args.step.pages[tile.slice.first_page + index], position - index * args.kv.page_size};
}

/// The cell (row of keys and of values) of a key; -1: no row sees it.
__device__ __forceinline__ std::int32_t cell_of(const AttentionKernelArgs& args, const Tile& tile,
                                                const KeyPlace& place) {
  if (place.at < 0) return -1;
  return (place.page * args.kv.page_size + place.at) * args.kv.num_kv_heads + tile.kv_head;
}
__device__ __forceinline__ std::int32_t cell_of(const AttentionKernelArgs& args, const Tile& tile,
                                                std::int32_t position) {
  return cell_of(args, tile, place_of(args, tile, position));
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

/// 16 bytes from the cache to shared memory, some time later; zeros where nobody sees the key, whose cell is then -1.
__device__ __forceinline__ void copy_piece(std::uint32_t to, const BF16Cell::Code* from, std::int32_t cell) {
  asm volatile(
      "{\n.reg .pred is_unseen;\nsetp.lt.s32 is_unseen, %2, 0;\n"
      "cp.async.cg.shared.global [%0], [%1], 16, is_unseen;\n}\n" ::"r"(to),
      "l"(from), "r"(cell)
      : "memory");
}
__device__ __forceinline__ void copy_piece(std::uint32_t to, const E4M3Cell::Code* from, std::int32_t cell) {
  Eight eight = {};
  if (cell >= 0) eight = load_eight(from);
  asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};\n" ::"r"(to), "r"(eight.pairs[0]), "r"(eight.pairs[1]),
               "r"(eight.pairs[2]), "r"(eight.pairs[3])
               : "memory");
}

/// Row `row` of a matrix of rows of kBytes, in one instruction.
template <int kBytes>
__device__ __forceinline__ const void* row_at(const void* matrix, std::int32_t row) {
  std::uint64_t at = 0;
  asm("mad.wide.u32 %0, %1, %2, %3;\n" : "=l"(at) : "r"(row), "n"(kBytes), "l"(matrix));
  return reinterpret_cast<const void*>(at);
}

/// The warp's kCount rows of a tile of kRows, from row `first` on (a multiple of 8); lane l knows the cell of row
/// first + l (-1: zeros). `tile` is a multiple of 128.
template <class Cell, int kDim, int kRows, int kCount>
__device__ __forceinline__ void copy_rows(const void* codes, std::int32_t cell, std::uint32_t tile, int first) {
  constexpr int kPieces = kDim / 8;
  constexpr int kAtOnce = kWarpSize / kPieces;  // rows
  static_assert(kCount % 8 == 0 && 8 % kAtOnce == 0);
  const auto row = static_cast<int>(threadIdx.x % kWarpSize / kPieces);
  const auto piece = static_cast<int>(threadIdx.x % kPieces);
  using Code = typename Cell::Code;
  const char* const from = static_cast<const char*>(codes) + piece * 8 * static_cast<int>(sizeof(Code));
  // The rows that a lane copies differ in bits that piece_offset() doesn't mix with those of its first.
  const std::uint32_t to = tile + static_cast<std::uint32_t>(piece_offset<kRows>(first + row, piece));
#pragma unroll 8
  for (int i = 0; i < kCount; i += kAtOnce) {
    const std::int32_t own = __shfl_sync(kWholeWarp, cell, i + row);
    const auto at = (to ^ static_cast<std::uint32_t>(i % 8 * 16)) + static_cast<std::uint32_t>(i * 128);
    copy_piece(at, static_cast<const Code*>(row_at<kDim* static_cast<int>(sizeof(Code))>(from, max(own, 0))), own);
  }
}

}  // namespace vernier::cuda
