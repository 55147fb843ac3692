// What attend_mma computes of a split: scores, their softmax and the weighted sums of values.
#pragma once

#include "backend/cuda/ops/attention_mma.cuh"

namespace vernier::cuda {

// Unsigned before they are int: of numbers that may be negative quotients are long.
__device__ __forceinline__ int warp_index() { return static_cast<int>(threadIdx.x / kWarpSize); }
__device__ __forceinline__ int lane_index() { return static_cast<int>(threadIdx.x % kWarpSize); }

/// A warp's scores: keys 16 (warp + i * kWarps) + lane / 4 (+ 8) and rows 2 (lane % 4) (+ 1) of each group.
template <int kDim, int kGroups>
using MmaScores = float[MmaShared<kDim, kGroups>::kKeyTiles][kGroups][4];
/// A warp's sums: dimensions in the place of keys.
template <int kDim, int kGroups>
using MmaSums = float[MmaShared<kDim, kGroups>::kDimTiles][kGroups][4];

/// Steps of products that are written out: all with the usual number of terms.
template <int kTerms, int kSteps>
constexpr int kUnrolled = kTerms == kMostTerms ? 1 : kSteps;

/// Raw scores of the warp's keys.
template <int kTerms, int kDim, int kGroups>
__device__ __forceinline__ void score_keys(const MmaShared<kDim, kGroups>& shared, std::uint32_t tile,
                                           MmaScores<kDim, kGroups>& scores) {
  using Memory = MmaShared<kDim, kGroups>;
  const int lane = lane_index();
  const std::uint32_t from =
      tile + static_cast<std::uint32_t>(piece_offset<kSplitKeys>(warp_index() * 16 + lane % 16, lane / 16));
#pragma unroll(kUnrolled <kTerms, kDim / 16>)
  for (int step = 0; step < kDim / 16; ++step) {
    // As piece_offset() has piece lane / 16 + 2 step of the same row: `tile` is a multiple of 128.
    const std::uint32_t at = (from ^ static_cast<std::uint32_t>(step % 4 * 32)) + step / 4 * kSplitKeys * 128;
    uint4 keys[Memory::kKeyTiles];
#pragma unroll
    for (int i = 0; i < Memory::kKeyTiles; ++i) keys[i] = load_matrices<false>(at + i * Memory::kWarps * 16 * 128);
#pragma unroll
    for (int term = kTerms - 1; term >= 0; --term) {  // small ones first
#pragma unroll
      for (int group = 0; group < kGroups; ++group) {
        const uint2 query = shared.query[term][group][step][lane];
#pragma unroll
        for (int i = 0; i < Memory::kKeyTiles; ++i) multiply_add(scores[i][group], keys[i], query.x, query.y);
      }
    }
  }
}

/// Caps and masks scores, and leaves the warp's largest of each row.
template <int kDim, int kGroups>
__device__ __forceinline__ void finish_scores(const AttentionKernelArgs& args, const Tile& tile, std::int32_t split,
                                              MmaShared<kDim, kGroups>& shared, MmaScores<kDim, kGroups>& scores) {
  using Memory = MmaShared<kDim, kGroups>;
  constexpr int kCount = Memory::kKeyTiles * 4;
  const int lane = lane_index();
  if (args.soft_cap > 0.0F) {  // code that isn't fetched costs nothing
#pragma unroll
    for (int i = 0; i < kCount * kGroups; ++i) {
      float& score = scores[i / (kGroups * 4)][i / 4 % kGroups][i % 4];
      score = finish_score(args, score);
    }
  }
  const std::int32_t begin = split * kSplitKeys;
  const bool is_seen = begin >= tile.common.first && begin + kSplitKeys <= tile.common.end;
#pragma unroll
  for (int group = 0; group < kGroups; ++group) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int row = group * 8 + lane % 4 * 2 + h;
      if (!is_seen) {
        const KeyRange keys = shared.places[row].keys;
        const std::int32_t own = begin + warp_index() * 16 + lane / 4;
#pragma unroll
        for (int i = h; i < kCount; i += 2) {
          const std::int32_t position = own + i / 4 * Memory::kWarps * 16 + i / 2 % 2 * 8;
          if (position < keys.first || position >= keys.end) scores[i / 4][group][i % 4] = -INFINITY;
        }
      }
      float largest = -INFINITY;
#pragma unroll
      for (int i = h; i < kCount; i += 2) largest = fmaxf(largest, scores[i / 4][group][i % 4]);
#pragma unroll
      for (int offset = 4; offset < kWarpSize; offset *= 2) {
        largest = fmaxf(largest, __shfl_xor_sync(kWholeWarp, largest, offset));
      }
      if (lane < 4) shared.largest[row][warp_index()] = largest;
    }
  }
}

/// What the weights of a row are relative to.
template <int kDim, int kGroups>
__device__ __forceinline__ float largest_of(const AttentionKernelArgs& args, const MmaShared<kDim, kGroups>& shared,
                                            int row) {
  float largest = -INFINITY;
#pragma unroll
  for (int i = 0; i < MmaShared<kDim, kGroups>::kWarps / 4; ++i) {
    const float4 four = *reinterpret_cast<const float4*>(&shared.largest[row][i * 4]);
    largest = fmaxf(largest, fmaxf(fmaxf(four.x, four.y), fmaxf(four.z, four.w)));
  }
  return largest_power(args, largest);
}

/// Scores become weights, for all warps to see.
template <int kDim, int kGroups>
__device__ __forceinline__ void weigh(const AttentionKernelArgs& args, MmaShared<kDim, kGroups>& shared,
                                      const MmaScores<kDim, kGroups>& scores) {
  using Memory = MmaShared<kDim, kGroups>;
  constexpr int kTermNumbers = Memory::kRows * (kSplitKeys + 16);
  const int lane = lane_index();
#pragma unroll
  for (int group = 0; group < kGroups; ++group) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int row = group * 8 + lane % 4 * 2 + h;
      const float largest = largest_of(args, shared, row);
      const float base = largest == -INFINITY ? 0.0F : largest;
#pragma unroll
      for (int i = 0; i < Memory::kKeyTiles; ++i) {
        const int tile = warp_index() + i * Memory::kWarps;
        float early = weight_of(args, scores[i][group][h], base);
        float late = weight_of(args, scores[i][group][2 + h], base);
        shared.sums[row][lane / 4][tile] = __fadd_rn(early, late);
        auto* const to =
            reinterpret_cast<std::uint16_t*>(&shared.weights[0][row][tile * 16 + lane / 8 * 4 + lane / 4 % 2]);
#pragma unroll
        for (int term = 0; term < kMostTerms; ++term) {
          if (term >= 2 && args.weight_terms <= term) break;
          const std::uint32_t pair = take_term(early, late);
          to[term * kTermNumbers] = static_cast<std::uint16_t>(pair);
          to[term * kTermNumbers + 2] = static_cast<std::uint16_t>(pair >> 16);
        }
      }
    }
  }
}

/// sums += values of a split's keys times weights: of the warp's dimensions, a column a row.
template <int kTerms, int kDim, int kGroups>
__device__ __forceinline__ void add_values(const MmaShared<kDim, kGroups>& shared, std::uint32_t tile,
                                           MmaSums<kDim, kGroups>& sums) {
  constexpr int kDimTiles = MmaShared<kDim, kGroups>::kDimTiles;
  const int lane = lane_index();
  std::uint32_t from[kDimTiles];
#pragma unroll
  for (int j = 0; j < kDimTiles; ++j) {
    const int piece = (warp_index() * kDimTiles + j) * 2 + lane / 8 % 2;
    from[j] = tile + static_cast<std::uint32_t>(piece_offset<kSplitKeys>(lane / 16 * 8 + lane % 8, piece));
  }
#pragma unroll(kUnrolled <kTerms, kSplitKeys / 16>)
  for (int step = 0; step < kSplitKeys / 16; ++step) {
    uint4 values[kDimTiles];
#pragma unroll
    for (int j = 0; j < kDimTiles; ++j) values[j] = load_matrices<true>(from[j] + step * 16 * 128);
#pragma unroll
    for (int term = kTerms - 1; term >= 0; --term) {  // small ones first
#pragma unroll
      for (int group = 0; group < kGroups; ++group) {
        const uint2 weights =
            *reinterpret_cast<const uint2*>(&shared.weights[term][group * 8 + lane / 4][step * 16 + lane % 4 * 4]);
#pragma unroll
        for (int j = 0; j < kDimTiles; ++j) multiply_add(sums[j][group], values[j], weights.x, weights.y);
      }
    }
  }
}

/// The split's softmax of row lane / 4 of a group.
template <int kDim, int kGroups>
__device__ __forceinline__ SoftmaxState state_of(const AttentionKernelArgs& args,
                                                 const MmaShared<kDim, kGroups>& shared, int group) {
  const int lane = lane_index();
  const int row = group * 8 + lane / 4;
  float total = 0.0F;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const auto* const parts = reinterpret_cast<const float4*>(shared.sums[row][lane % 4 * 2 + i]);
    const float4 first = parts[0];
    const float4 second = parts[1];
    float sum = __fadd_rn(__fadd_rn(__fadd_rn(first.x, first.y), first.z), first.w);
    sum = __fadd_rn(__fadd_rn(__fadd_rn(__fadd_rn(sum, second.x), second.y), second.z), second.w);
    total = i == 0 ? sum : __fadd_rn(total, sum);
  }
  total = __fadd_rn(total, __shfl_xor_sync(kWholeWarp, total, 1));
  total = __fadd_rn(total, __shfl_xor_sync(kWholeWarp, total, 2));
  return {largest_of(args, shared, row), total};
}

}  // namespace vernier::cuda
