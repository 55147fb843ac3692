// What a block of attend_mma has in shared memory, how it goes through its splits, and how the last of several blocks
// brings together what they found.
#pragma once

#include <cuda_bf16.h>

#include "backend/cuda/ops/attention_state.cuh"
#include "backend/cuda/ops/attention_tile.cuh"
#include "backend/cuda/ops/math.cuh"

namespace vernier::cuda {

constexpr int kMostTerms = 3;

/// A row of a tile.
struct RowPlace {
  std::int32_t token;  ///< of the slice; -1: the row holds no query
  std::int32_t head;
  KeyRange keys;  ///< that it sees
};

/// A block and its shared memory: kGroups times 8 rows. Behind it a ring of tiles of kTileBytes, keys or values of a
/// split. A longer ring is hardly faster, and the more shared memory attention has, the less is left as first-level
/// cache for the products in front and behind, through which their weights stream.
template <int kDim, int kGroups>
struct alignas(128) MmaShared {
  static constexpr int kRows = 8 * kGroups;
  static constexpr int kWarps = kDim == 64 ? 4 : 8;
  static constexpr int kThreads = kWarps * kWarpSize;
  static constexpr int kWarpKeys = kSplitKeys / kWarps;       ///< that a warp copies
  static constexpr int kKeyTiles = kSplitKeys / 16 / kWarps;  ///< of 16 keys, a warp's
  static constexpr int kDimTiles = kDim / 16 / kWarps;        ///< of 16 dimensions, a warp's
  static constexpr int kTileBytes = kSplitKeys * kDim * 2;
  static constexpr int kStages = 2;                                                       ///< of the ring
  static constexpr int kBlocks = kDim == 256 || kGroups > 1 ? 1 : (kDim == 128 ? 2 : 4);  ///< of a multiprocessor
  uint2 query[kMostTerms][kGroups][kDim / 16][kWarpSize];
  /// Of 16 keys side by side pairs 0, 4, 1, 5, 2, 6, 3, 7: a lane of a product takes two of them. Spread over the
  /// banks.
  __nv_bfloat16 weights[kMostTerms][kRows][kSplitKeys + 16];
  float sums[kRows][8][12];  ///< of weights: key % 8, key / 16; spread
  float largest[kRows][8];   ///< scores, the warps'
  RowPlace places[kRows];

  static constexpr std::size_t bytes() { return sizeof(MmaShared) + std::size_t{kStages} * kTileBytes; }
};

/// What a block goes through, and what a thread knows of it.
template <int kGroups>
struct MmaWalk {
  Tile tile;
  std::int32_t split;  ///< of the tile that is asked for next
  std::int32_t end;
  std::int32_t cell;              ///< of that split: of the warp's key number lane
  KeyPlace next_place = {0, -1};  ///< of the split behind it
  int step = 0;                   ///< of that split: keys, values
  std::uint32_t ring;             ///< addresses: the ring, its end, the tile that is filled next and the one read next
  std::uint32_t ring_end;
  std::uint32_t fill;
  std::uint32_t read;
  SoftmaxState state[kGroups];  ///< of row lane / 4
};

/// y of one row from the partial states of its splits, no more than 32, by a warp: fold_splits() to the bit. The
/// factors of all are known at once, since maxima need no order. `factors`: 32 of the warp's own in shared memory.
template <int kDim>
__device__ void fold_row(const AttentionKernelArgs& args, std::int64_t row, const RowPlace& place, float4* factors) {
  constexpr int kAtOnce = 8;  // on their way together
  constexpr int kStride = kDim + kStateNumbers;
  const auto lane = static_cast<int>(threadIdx.x % kWarpSize);
  const std::int32_t first = place.keys.first / kSplitKeys;
  const std::int32_t count = (place.keys.end - 1) / kSplitKeys + 1 - first;
  const float* const from = partial_of(args, row, place.head, first);
  // The first numbers are asked for with the states, the others while those before are added.
  float4 next[kAtOnce];
  const auto ask = [&](int d, std::int32_t split) {
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      next[i] = __ldcg(reinterpret_cast<const float4*>(from + d + min(split + i, count - 1) * kStride));
    }
  };
  SoftmaxState own = empty_state();
  if (lane < count) own = {__ldcg(from + lane * kStride + kDim), __ldcg(from + lane * kStride + kDim + 1)};
  if (lane * 4 < kDim) ask(lane * 4, 0);
  float so_far = own.largest;
#pragma unroll
  for (int offset = 1; offset < kWarpSize; offset *= 2) {
    const float other = __shfl_up_sync(kWholeWarp, so_far, offset);
    if (lane >= offset) so_far = fmaxf(so_far, other);
  }
  float before = __shfl_up_sync(kWholeWarp, so_far, 1);
  if (lane == 0) before = -INFINITY;
  const float largest = __shfl_sync(kWholeWarp, so_far, kWarpSize - 1);
  factors[lane] = {rescale(before, so_far), rescale(own.largest, so_far), own.total, 0.0F};
  __syncwarp();
#pragma unroll 1
  for (int d = lane * 4; d < kDim; d += kWarpSize * 4) {
    float sums[4] = {};
    float total = 0.0F;
#pragma unroll 1
    for (std::int32_t split = 0; split < count; split += kAtOnce) {
      float4 now[kAtOnce];
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) now[i] = next[i];
      if (split + kAtOnce < count) {
        ask(d, split + kAtOnce);
      } else if (d + kWarpSize * 4 < kDim) {
        ask(d + kWarpSize * 4, 0);
      }
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        const float4 of_split = factors[split + i];
        const FoldFactors both = {of_split.x, of_split.y};
        if (split + i < count) {
          total = fold_value(total, of_split.z, both);
          sums[0] = fold_value(sums[0], now[i].x, both);
          sums[1] = fold_value(sums[1], now[i].y, both);
          sums[2] = fold_value(sums[2], now[i].z, both);
          sums[3] = fold_value(sums[3], now[i].w, both);
        }
      }
    }
    const float factor = finish(args, place.head, {largest, total});
    float* const to = args.y.data + row * args.y.stride + std::int64_t{place.head} * kDim + d;
#pragma unroll
    for (int k = 0; k < 4; ++k) to[k] = __fmul_rn(sums[k], factor);
  }
  __syncwarp();
}

}  // namespace vernier::cuda
