// What a block of attend_mma has in shared memory, and how it goes through its splits.
#pragma once

#include <cuda_bf16.h>

#include "backend/cuda/ops/attention_state.cuh"
#include "backend/cuda/ops/attention_tile.cuh"
#include "backend/cuda/ops/math.cuh"

namespace vernier::cuda {

constexpr int kMostTerms = 3;

/// A block and its shared memory: kGroups times 8 rows, kRing buffers for keys or values of a split.
template <int kDim, int kGroups, int kRing>
struct MmaShared {
  static constexpr int kRows = 8 * kGroups;
  static constexpr int kWarps = kDim == 64 ? 4 : 8;
  static constexpr int kThreads = kWarps * kWarpSize;
  static constexpr int kKeyTiles = kSplitKeys / 16 / kWarps;  ///< of 16 keys, a warp's
  static constexpr int kDimTiles = kDim / 16 / kWarps;        ///< of 16 dimensions, a warp's
  static constexpr int kTileBytes = kSplitKeys * kDim * 2;
  static constexpr int kStages = kRing;
  static constexpr int kBlocks = kDim == 256 || kGroups > 1 ? 1 : (kDim == 128 ? 2 : 3);  ///< of a multiprocessor
  std::byte ring[kStages][kTileBytes];
  uint2 query[kMostTerms][kGroups][kDim / 16][kWarpSize];
  __nv_bfloat16 weights[kMostTerms][kRows][kSplitKeys + 8];  ///< spreads the rows over the banks
  float sums[kRows][8][12];                                  ///< of weights: key % 8, key / 16; spread
  float largest[kRows][8];                                   ///< scores, the warps'
};

/// What a block goes through, and what a thread knows of it.
template <int kDim, int kGroups, int kRing>
struct MmaWalk {
  Tile tile;
  std::int32_t split;  ///< of the tile that is asked for next
  std::int32_t end;
  std::int32_t cell;  ///< of that split: of the warp's key number lane
  std::int32_t next_cell;
  int step = 0;                 ///< of that split: keys, values
  int fill = 0;                 ///< stage of the ring that is filled next
  int read = -1;                ///< stage that is read
  KeyRange keys[kGroups][2];    ///< of rows 2 (lane % 4) and one more of each group
  SoftmaxState state[kGroups];  ///< of row lane / 4
};

}  // namespace vernier::cuda
