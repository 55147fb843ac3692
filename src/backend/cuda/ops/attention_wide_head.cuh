// How a block of attend_wide_head shares its work, what it keeps in shared memory, and how keys and values get there.
//
// The warps share the dimensions of the result: 64 for each. Keys come in chunks of 128, in pieces: all of the chunk's
// keys with some of the dimensions, one after the other, then some of its values with all dimensions. Pieces go round
// in a ring of buffers, so that several are on their way while one is at work.
#pragma once

#include "backend/cuda/ops/attention_fragment.cuh"
#include "backend/cuda/ops/attention_state.cuh"
#include "backend/cuda/ops/attention_tile.cuh"

namespace vernier::cuda {

constexpr int kChunkKeys = 128;
constexpr int kGroupKeys = 16;  ///< keys of a matrix instruction
constexpr int kChunkGroups = kChunkKeys / kGroupKeys;
constexpr int kUnitBytes = 16;  ///< what a thread copies at a time

/// kDimensions is what head_dim is padded to: the numbers behind are zeros.
template <class CellType, int kDimensions, int kTiles, int kTerms>
struct WideShape {
  using Cell = CellType;
  using Code = typename Cell::Code;
  static constexpr int kDim = kDimensions;
  static constexpr int kRowTiles = kTiles;
  static constexpr int kRows = 16 * kRowTiles;
  static constexpr int kQueryTerms = kTerms;
  static constexpr int kWeightTerms = kTerms == 1 ? 2 : 3;
  static constexpr int kWarps = kDim / 64;
  static constexpr int kThreads = kWarps * kWarpSize;
  static constexpr int kThreadCells = (kChunkKeys + kThreads - 1) / kThreads;
  static constexpr int kKeyWarps = kWarps / kRowTiles;  ///< share a row tile's keys
  static constexpr int kWarpKeys = kChunkKeys / kKeyWarps;
  static constexpr int kPieceDims = kDim > 256 ? 128 : 64;  ///< of a piece of keys
  static constexpr int kPieceNumbers = kChunkKeys * kPieceDims;
  static constexpr int kPieceBytes = kPieceNumbers * static_cast<int>(sizeof(Code));
  static constexpr int kValueKeys = kPieceNumbers / kDim;  ///< of a piece of values
  static constexpr int kKeyPieces = kDim / kPieceDims;
  static constexpr int kPieces = kKeyPieces + kChunkKeys / kValueKeys;
  static constexpr int kMostBuffers = kPieces < 6 ? kPieces - 1 : 5;  ///< a chunk's cells are known that early
  static constexpr int kPerUnit = kUnitBytes / static_cast<int>(sizeof(Code));
};

/// A query row: where its numbers are and what it sees. Head -1 and no keys: there is none.
struct WideRow {
  std::int32_t matrix_row;
  std::int32_t head;
  KeyRange keys;
};

template <class Shape>
struct WideShared {
  uint4 query[Shape::kRowTiles][Shape::kDim / 16][Shape::kQueryTerms][kWarpSize];
  uint4 weights[Shape::kRowTiles][kChunkGroups][Shape::kWeightTerms][kWarpSize];
  float largest[Shape::kKeyWarps][Shape::kRows];  ///< of a warp's scores
  float totals[Shape::kRows][kChunkGroups];       ///< of a group's weights
  std::int32_t cells[2][kChunkKeys];              ///< of a chunk and the one behind it
  WideRow rows[Shape::kRows];
};

/// Number j of two rows, side by side.
__device__ inline std::uint32_t join_numbers(const Eight& first, const Eight& second, int j) {
  return __byte_perm(first.pairs[j / 2], second.pairs[j / 2], j % 2 == 0 ? 0x5410 : 0x7632);
}

/// The cell (row of keys and of values) of a position; of a neighbour's where no row of the tile sees it, since it may
/// lie in a page that doesn't exist.
__device__ inline std::int32_t cell_of_key(const AttentionKernelArgs& args, const Tile& tile, std::int32_t position) {
  const std::int32_t seen = min(max(position, tile.keys.first), tile.keys.end - 1);
  return static_cast<std::int32_t>(kv_index(args.kv, args.step, tile.slice, seen, tile.kv_head) / args.kv.head_dim);
}

/// The cells of a chunk that a thread looks up.
template <class Shape>
struct ThreadCells {
  std::int32_t cell[Shape::kThreadCells];
};

template <class Shape>
__device__ ThreadCells<Shape> find_cells(const AttentionKernelArgs& args, const Tile& tile, std::int32_t chunk) {
  ThreadCells<Shape> found = {};
#pragma unroll
  for (int i = 0; i < Shape::kThreadCells; ++i) {
    const int key = static_cast<int>(threadIdx.x) + i * Shape::kThreads;
    if (key < kChunkKeys) found.cell[i] = cell_of_key(args, tile, chunk * kChunkKeys + key);
  }
  return found;
}

template <class Shape>
__device__ void leave_cells(const ThreadCells<Shape>& found, std::int32_t (&cells)[kChunkKeys]) {
#pragma unroll
  for (int i = 0; i < Shape::kThreadCells; ++i) {
    const int key = static_cast<int>(threadIdx.x) + i * Shape::kThreads;
    if (key < kChunkKeys) cells[key] = found.cell[i];
  }
}

/// Where a piece of keys has unit `unit` of a key: so that lanes which read together meet different banks.
template <class Shape>
__device__ int key_unit(int key, int unit) {
  constexpr int kRowUnits = Shape::kPieceDims / Shape::kPerUnit;
  constexpr bool kIsWide = sizeof(typename Shape::Code) == 2;
  const int turn = kIsWide ? key % 2 * 4 : (kRowUnits == 8 ? key % 4 * 2 : key / 2 % 2 * 2);
  return key * kRowUnits + (unit ^ turn);
}

/// The same of a piece of values.
template <class Shape>
__device__ int value_unit(int key, int unit) {
  return key * (Shape::kDim / Shape::kPerUnit) + (unit ^ (key / 2 % 4 * 2));
}

/// 16 bytes on their way to shared memory, or zeros.
__device__ inline void copy_unit(void* to, const void* from, bool exists) {
  const auto address = static_cast<unsigned>(__cvta_generic_to_shared(to));
  const int bytes = exists ? kUnitBytes : 0;
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(address), "l"(from), "r"(bytes) : "memory");
}

/// Asks for the first units of the keys (or values) of some cells, from a thread's share of them.
template <class Shape, bool kIsKeys>
__device__ void request_rows(const AttentionKernelArgs& args, const std::int32_t* cells, int first_dim, uint4* buffer) {
  using Code = typename Shape::Code;
  constexpr int kRowUnits = (kIsKeys ? Shape::kPieceDims : Shape::kDim) / Shape::kPerUnit;
  constexpr int kAtOnce = Shape::kThreads / kRowUnits;  // keys
  constexpr int kCount = Shape::kPieceBytes / kUnitBytes / Shape::kThreads;
  constexpr int kPeriod = kAtOnce >= 8 ? 1 : 8 / kAtOnce;  // units of keys 8 apart lie alike
  const auto dim = static_cast<std::uint32_t>(args.kv.head_dim);
  const int first_key = static_cast<int>(threadIdx.x) / kRowUnits;
  const int unit = static_cast<int>(threadIdx.x) % kRowUnits;
  const auto d = static_cast<std::uint32_t>(first_dim + unit * Shape::kPerUnit);
  const bool exists = d < dim;
  const auto* const from = static_cast<const Code*>(kIsKeys ? args.kv.keys : args.kv.values) + (exists ? d : 0);
  std::uint32_t own[kCount];
#pragma unroll
  for (int i = 0; i < kCount; ++i) own[i] = static_cast<std::uint32_t>(cells[first_key + i * kAtOnce]);
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    const int key = first_key + i % kPeriod * kAtOnce;
    uint4* const to = buffer + (kIsKeys ? key_unit<Shape>(key, unit) : value_unit<Shape>(key, unit));
    copy_unit(to + i / kPeriod * kPeriod * kAtOnce * kRowUnits, from + std::uint64_t{own[i]} * dim, exists);
  }
}

/// Asks for piece `index` of the chunk whose cells these are.
template <class Shape>
__device__ void request_piece(const AttentionKernelArgs& args, const std::int32_t* cells, int index, uint4* buffer) {
  if (index < Shape::kKeyPieces) {
    request_rows<Shape, true>(args, cells, index * Shape::kPieceDims, buffer);
  } else {
    request_rows<Shape, false>(args, cells + (index - Shape::kKeyPieces) * Shape::kValueKeys, 0, buffer);
  }
}

__device__ inline void end_request() { asm volatile("cp.async.commit_group;" ::: "memory"); }

/// Until at most `pending` requests are on their way.
__device__ inline void wait_for_requests(int pending) {
  if (pending >= 3) {
    asm volatile("cp.async.wait_group 3;" ::: "memory");
  } else if (pending == 2) {
    asm volatile("cp.async.wait_group 2;" ::: "memory");
  } else if (pending == 1) {
    asm volatile("cp.async.wait_group 1;" ::: "memory");
  } else {
    asm volatile("cp.async.wait_group 0;" ::: "memory");
  }
}

}  // namespace vernier::cuda
