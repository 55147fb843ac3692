// Products with many tokens: multiplying is the work. A block takes 128 rows and 16 * kGroups columns (tokens, or each
// of their bf16 terms one); of its eight warps four share the rows, and two the columns. Packed weights go from memory
// through registers straight into fragments; the input comes through a ring in shared memory.
//
// Sums are kept as the other kernels keep them: a segment of columns at a time (segments.h), then the segments in their
// order. So a row's result is the same to the bit as theirs.
#pragma once

#include <cstdint>

#include "backend/cuda/fragment/stage.cuh"
#include "backend/cuda/linear/product_job.cuh"
#include "backend/cuda/linear/segments.h"
#include "backend/cuda/predecessor.cuh"

namespace vernier::cuda {

template <Packing kPacking, int kGroups>
struct WideProduct {
  using Stage = typename UnitStageOf<kPacking>::Type;
  static constexpr int kThreads = 256;
  static constexpr int kTiles = 2;  ///< row tiles of a warp
  static constexpr int kRows = 128;
  static constexpr int kColumns = 16 * kGroups;
  static constexpr int kDepth = 4;                    ///< stages of the ring, a unit each
  static constexpr int kInputStride = kUnitCols + 8;  ///< bf16 numbers; reads meet no bank conflicts
  static constexpr int kTotalStride = kRows + 4;      ///< likewise
  static constexpr int kPiecesPerThread = kColumns * kUnitCols / 8 / kThreads;
  using Sums = float[kTiles][kGroups][4];

  struct Shared {
    alignas(16) std::uint16_t input[kDepth][kColumns * kInputStride];
    float totals[kColumns * kTotalStride];
  };

  /// What a thread copies of each unit of the input.
  struct Feed {
    const std::uint16_t* from[kPiecesPerThread];
    std::uint32_t to[kPiecesPerThread];  ///< shared-memory addresses in the ring's first stage
  };

  static __device__ Feed find_feed(const ProductJob& job, int first_token, int count, Shared& shared) {
    Feed feed;
    const int terms = job.x.terms;
#pragma unroll
    for (int i = 0; i < kPiecesPerThread; ++i) {
      const int piece = static_cast<int>(threadIdx.x) + i * kThreads;
      const int column = min(piece / 8, count * terms - 1);
      const std::int64_t row = job.x_row(first_token + column / terms) * terms + column % terms;
      feed.from[i] = job.x.rounded + row * job.x.rounded_stride + piece % 8 * 8;
      feed.to[i] = static_cast<std::uint32_t>(
          __cvta_generic_to_shared(shared.input[0] + piece / 8 * kInputStride + piece % 8 * 8));
    }
    return feed;
  }

  /// Asks for a unit of the input (none beyond the last: then only a group of copies is closed).
  static __device__ __forceinline__ void ask_for(const Feed& feed, int unit, int units) {
    if (unit < units) {
      const std::uint32_t stage = static_cast<std::uint32_t>(unit % kDepth * kColumns * kInputStride * 2);
#pragma unroll
      for (int i = 0; i < kPiecesPerThread; ++i) {
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;\n" ::"r"(feed.to[i] + stage),
                     "l"(feed.from[i] + unit * kUnitCols));
      }
    }
    asm volatile("cp.async.commit_group;\n");
  }
  static __device__ __forceinline__ void wait_for_unit() {
    asm volatile("cp.async.wait_group %0;\n" ::"n"(kDepth - 2));
    __syncthreads();
  }

  static __device__ __forceinline__ void multiply_unit(const Stage (&stage)[kTiles], std::uint32_t bias,
                                                       const std::uint16_t* input, Sums& sums) {
    FragmentA a[kTiles][4];
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) stage[tile].decode(0, bias, a[tile]);
#pragma unroll
    for (int group = 0; group < kGroups; ++group) {
      const auto* from = reinterpret_cast<const uint4*>(input + group * 8 * kInputStride);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const uint4 b = from[half];
#pragma unroll
        for (int tile = 0; tile < kTiles; ++tile) {
          multiply_add(sums[tile][group], a[tile][2 * half], {{b.x, b.y}});
          multiply_add(sums[tile][group], a[tile][2 * half + 1], {{b.z, b.w}});
        }
      }
    }
  }

  /// A warp's place in the block's tile.
  struct Place {
    int lane;
    int row;     ///< of its first tile, plus the lane's g
    int column;  ///< its first, plus 2 t
  };
  static __device__ Place find_place() {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int warp = static_cast<int>(threadIdx.x) / 32;
    return {lane, warp % 4 * 32 + lane / 4, warp / 4 * 8 * kGroups + lane % 4 * 2};
  }

  /// Adds a finished segment to the totals, each thread to its own, and begins anew.
  static __device__ void close_segment(const Place& place, bool is_first, Sums& sums, Shared& shared) {
#pragma unroll
    for (int i = 0; i < kTiles * kGroups * 4; ++i) {
      const int tile = i / 4 / kGroups;
      const int group = i / 4 % kGroups;
      const int row = place.row + tile * 16 + i % 4 / 2 * 8;
      const int column = place.column + group * 8 + i % 2;
      float& total = shared.totals[column * kTotalStride + row];
      total = is_first ? sums[tile][group][i % 4] : __fadd_rn(total, sums[tile][group][i % 4]);
      sums[tile][group][i % 4] = 0.0F;
    }
  }

  static __device__ __forceinline__ void add_scaled(const float* const (&grid)[kTiles][2], int unit, Sums& part,
                                                    Sums& sums) {
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
      const float low = grid[tile][0][unit * kUnitCols / kGridCols];
      const float high = grid[tile][1][unit * kUnitCols / kGridCols];
#pragma unroll
      for (int i = 0; i < kGroups * 4; ++i) {
        float& from = part[tile][i / 4][i % 4];
        sums[tile][i / 4][i % 4] = __fmaf_rn(i % 4 < 2 ? low : high, from, sums[tile][i / 4][i % 4]);
        from = 0.0F;
      }
    }
  }

  static __device__ void multiply(const ProductJob& job, const Feed& feed, Shared& shared) {
    const WeightRef& w = job.matrix->weight;
    const Place place = find_place();
    const int units = w.units;
    TileCursor cursor[kTiles];
    const float* grid[kTiles][2] = {};
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
      const int wanted = job.tile * (kRows / kTileRows) + place.row / 16 + tile;
      const int at = min(wanted, (w.rows - 1) / kTileRows);  // tiles too many repeat the last; they are not stored
      cursor[tile] = tile_cursor<kPacking>(w, at, place.lane);
      if constexpr (Stage::kGridCols > 0) {
        grid[tile][0] = grid_row(w, min(at * kTileRows + place.lane / 4, w.rows - 1));
        grid[tile][1] = grid_row(w, min(at * kTileRows + place.lane / 4 + 8, w.rows - 1));
      }
    }
    for (int unit = 0; unit < kDepth - 1; ++unit) ask_for(feed, unit, units);
    Stage next[kTiles];
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) next[tile].load(cursor[tile], 0);
    Sums sums = {};
    Sums part = {};
    int segment = 0;
    bool is_first = true;
    while (segment_begin(units, segment + 1) == 0) ++segment;
    int segment_end = segment_begin(units, segment + 1);
    const std::uint16_t* const input =
        shared.input[0] + (place.column - place.lane % 4 * 2 + place.lane / 4) * kInputStride + place.lane % 4 * 16;
    for (int unit = 0; unit < units; ++unit) {
      wait_for_unit();
      ask_for(feed, unit + kDepth - 1, units);
      Stage now[kTiles];
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) {
        now[tile] = next[tile];
        if (unit + 1 < units) next[tile].load(cursor[tile], unit + 1);
      }
      const std::uint16_t* const at = input + unit % kDepth * (kColumns * kInputStride);
      multiply_unit(now, w.scale_bias, at, Stage::kGridCols > 0 ? part : sums);
      if constexpr (Stage::kGridCols > 0) {
        if (unit % 2 == 1 || unit + 1 == units) add_scaled(grid, unit, part, sums);
      }
      if (unit + 1 == segment_end) {
        close_segment(place, is_first, sums, shared);
        is_first = false;
        while (segment + 1 < kSegments && segment_end == unit + 1) segment_end = segment_begin(units, ++segment + 1);
      }
    }
    asm volatile("cp.async.wait_all;\n");
    __syncthreads();
  }

  static __device__ void store(const ProductJob& job, int first_token, int count, const Shared& shared) {
    const WeightRef& w = job.matrix->weight;
    const int terms = job.x.terms;
    for (int i = static_cast<int>(threadIdx.x); i < count * kRows; i += kThreads) {
      const int row = job.tile * kRows + i % kRows;
      const int token = i / kRows;
      if (row >= w.rows) continue;
      const float* total = shared.totals + token * terms * kTotalStride + i % kRows;
      const float sum = terms == 1 ? total[0] : add_terms(total[0], total[kTotalStride], total[2 * kTotalStride]);
      float* y = job.y + job.y_row(first_token + token) * job.y_stride + row;
      *y = finish_product(*job.matrix, row, sum * w.rescale, job.accumulate ? y : nullptr);
    }
  }

  /// All threads of a block; the job's input is rounded.
  static __device__ void run(const ProductJob& job, Shared& shared) {
    const int most = kColumns / job.x.terms;
    for (int first = job.first_token; first < job.end_token; first += most) {
      const int count = min(most, job.end_token - first);
      multiply(job, find_feed(job, first, count, shared), shared);
      store(job, first, count, shared);
      __syncthreads();
    }
  }
};

}  // namespace vernier::cuda
