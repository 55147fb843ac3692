// Products with many tokens: multiplying is the work. A block takes 128 rows and up to 128 columns (tokens, or each of
// their bf16 terms one); its eight warps take kTiles row tiles and 8 * kGroups columns each. Packed weights go from
// memory through registers straight into fragments; the input comes through a ring in shared memory.
//
// Sums are kept as the other kernels keep them: a segment of columns at a time (segments.h), then the segments in their
// order. So a row's result is the same to the bit as theirs.
#pragma once

#include <cstdint>

#include "backend/cuda/fragment/group_stage.cuh"
#include "backend/cuda/fragment/stage.cuh"
#include "backend/cuda/linear/product_job.cuh"
#include "backend/cuda/linear/segments.h"
#include "backend/cuda/predecessor.cuh"

namespace vernier::cuda {

template <Packing kPacking, int kTiles, int kGroups>
struct WideProduct {
  using Stage = typename UnitStageOf<kPacking>::Type;
  static constexpr GroupShape kShape = group_shape(kPacking);
  static constexpr bool kIsGrouped = has_groups(kPacking);
  static constexpr int kThreads = 256;
  static constexpr int kRows = 128;
  static constexpr int kRowWarps = kRows / kTileRows / kTiles;
  static constexpr int kColumns = 8 / kRowWarps * 8 * kGroups;
  static constexpr int kBlocks = kColumns > 32 ? 1 : 2;  ///< that a multiprocessor shall have registers for
  static constexpr int kDepth = 4;                       ///< stages of the ring, a unit each
  static constexpr int kTotalStride = kRows + 4;         ///< reads meet no bank conflicts
  static constexpr int kPiecesPerThread = kColumns * kUnitCols / 8 / kThreads;
  static constexpr int kSums = sums_of_chunk(kShape);  ///< of a column
  static constexpr int kSumPieces = kColumns * kSums / 8;
  static constexpr int kSumsPerThread = (kSumPieces + kThreads - 1) / kThreads;
  using Sums = float[kTiles][kGroups][4];

  struct Shared {
    alignas(16) std::uint16_t input[kDepth][kColumns * kUnitCols];
    alignas(16) std::uint16_t sums[2][kColumns * (kSums > 0 ? kSums : 8)];  ///< of every other chunk
    float totals[kColumns * kTotalStride];
  };

  /// Where a column's pieces of 16 bytes of a unit lie: so that reads meet no bank conflicts.
  static __device__ __forceinline__ int piece_place(int column, int piece) {
    return piece ^ (kIsGrouped ? column % 2 * 4 + column % 4 / 2 * 2 : column % 2);
  }

  /// What a thread copies of each unit of the input, and of each chunk's sums.
  struct Feed {
    const std::uint16_t* from[kPiecesPerThread];
    std::uint32_t to[kPiecesPerThread];  ///< shared-memory addresses in the ring's first stage
    const std::uint16_t* sums_from[kSumsPerThread > 0 ? kSumsPerThread : 1];
    std::uint32_t sums_to;
  };

  static __device__ Feed find_feed(const ProductJob& job, int first_token, int count, Shared& shared) {
    Feed feed;
    const int terms = job.x.terms;
    const auto row_of = [&](int place) {
      const int column = min(place, count * terms - 1);
      const std::int64_t row = job.x_row(first_token + column / terms) * terms + column % terms;
      return job.x.rounded + row * job.x.rounded_stride;
    };
#pragma unroll
    for (int i = 0; i < kPiecesPerThread; ++i) {
      const int piece = static_cast<int>(threadIdx.x) + i * kThreads;
      feed.from[i] = row_of(piece / 8) + piece % 8 * 8;
      feed.to[i] = static_cast<std::uint32_t>(
          __cvta_generic_to_shared(shared.input[0] + piece / 8 * kUnitCols + piece_place(piece / 8, piece % 8) * 8));
    }
    if constexpr (kSums > 0) {
#pragma unroll
      for (int i = 0; i < kSumsPerThread; ++i) {
        const int piece = min(static_cast<int>(threadIdx.x) + i * kThreads, kSumPieces - 1);
        feed.sums_from[i] =
            row_of(piece / (kSums / 8)) + job.matrix->weight.units * kUnitCols + piece % (kSums / 8) * 8;
      }
      feed.sums_to = static_cast<std::uint32_t>(__cvta_generic_to_shared(shared.sums[0])) + threadIdx.x * 16;
    }
    return feed;
  }

  static __device__ __forceinline__ void copy_piece(std::uint32_t to, const std::uint16_t* from) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;\n" ::"r"(to), "l"(from));
  }
  /// Asks for a unit of the input (none beyond the last: then only a group of copies is closed), and with the first of
  /// a chunk for its sums.
  static __device__ __forceinline__ void ask_for(const Feed& feed, int unit, int units) {
    if (unit < units) {
      const std::uint32_t stage = static_cast<std::uint32_t>(unit % kDepth * kColumns * kUnitCols * 2);
#pragma unroll
      for (int i = 0; i < kPiecesPerThread; ++i) copy_piece(feed.to[i] + stage, feed.from[i] + unit * kUnitCols);
      if (kSums > 0 && unit % kChunkUnits == 0) {
        const int chunk = unit / kChunkUnits;
#pragma unroll
        for (int i = 0; i < kSumsPerThread; ++i) {
          if (static_cast<int>(threadIdx.x) + i * kThreads >= kSumPieces) continue;
          copy_piece(feed.sums_to + static_cast<std::uint32_t>(chunk % 2 * kColumns * kSums * 2 + i * kThreads * 16),
                     feed.sums_from[i] + chunk * kSums);
        }
      }
    }
    asm volatile("cp.async.commit_group;\n");
  }
  static __device__ __forceinline__ void wait_for_unit() {
    asm volatile("cp.async.wait_group %0;\n" ::"n"(kDepth - 2));
    __syncthreads();
  }

  /// A warp's place in the block's tile.
  struct Place {
    int lane;
    int row;     ///< of its first tile, plus the lane's g
    int column;  ///< its first, plus 2 t
    [[nodiscard]] __device__ int input_column() const { return column - lane % 4 * 2 + lane / 4; }
  };
  static __device__ Place find_place() {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int warp = static_cast<int>(threadIdx.x) / 32;
    return {lane, warp % kRowWarps * (kTileRows * kTiles) + lane / 4, warp / kRowWarps * 8 * kGroups + lane % 4 * 2};
  }

  /// Parts of a unit that a lane reads together: 16 bytes, two fragments; of groups of 16 columns 8 bytes, one.
  static constexpr int kFragments = Stage::kGroupCols == 16 ? 1 : 2;
  static constexpr int kParts = 4 / kFragments;
  /// Where a lane finds them in a stage of the ring.
  struct Reader {
    int at[kParts];

    static __device__ Reader of(const Place& place) {
      Reader reader;
      const int t = place.lane % 4;
#pragma unroll
      for (int part = 0; part < kParts; ++part) {
        const int piece = !kIsGrouped ? 2 * t + part : kFragments == 2 ? 4 * part + t : 2 * part + t / 2;
        const int within = kFragments == 2 ? 0 : t % 2 * 4;
        reader.at[part] = place.input_column() * kUnitCols + piece_place(place.input_column(), piece) * 8 + within;
      }
      return reader;
    }
    /// Of 8 columns.
    __device__ __forceinline__ void read(const std::uint16_t* stage, int group, int part,
                                         FragmentB (&b)[kFragments]) const {
      const std::uint16_t* const from = stage + at[part] + group * (8 * kUnitCols);
      if constexpr (kFragments == 2) {
        const uint4 words = *reinterpret_cast<const uint4*>(from);
        b[0] = FragmentB{{words.x, words.y}};
        b[1] = FragmentB{{words.z, words.w}};
      } else {
        const uint2 words = *reinterpret_cast<const uint2*>(from);
        b[0] = FragmentB{{words.x, words.y}};
      }
    }
  };

  static __device__ __forceinline__ void multiply_unit(const Stage (&stage)[kTiles], std::uint32_t bias,
                                                       const Reader& reader, const std::uint16_t* input, Sums& sums) {
    FragmentA a[kTiles][4];
    if constexpr (HasLast<Stage>) {
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) stage[tile].decode_last(0, a[tile]);
      multiply_fragments(a, reader, input, sums);
    }
    if constexpr (HasRest<Stage>) {
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) stage[tile].decode_rest(0, a[tile]);
      multiply_fragments(a, reader, input, sums);
    }
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) stage[tile].decode(0, bias, a[tile]);
    multiply_fragments(a, reader, input, sums);
  }
  static __device__ __forceinline__ void multiply_fragments(const FragmentA (&a)[kTiles][4], const Reader& reader,
                                                            const std::uint16_t* input, Sums& sums) {
#pragma unroll
    for (int group = 0; group < kGroups; ++group) {
#pragma unroll
      for (int part = 0; part < kParts; ++part) {
        FragmentB b[kFragments];
        reader.read(input, group, part, b);
#pragma unroll
        for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
          for (int f = 0; f < kFragments; ++f) multiply_add(sums[tile][group], a[tile][part * kFragments + f], b[f]);
        }
      }
    }
  }

  static constexpr int kAtOnce = 4;  ///< groups of 8 columns: the tensor cores begin with all before they end one
  /// The same of groups, a part being one: its scale multiplies its sums, as NarrowProduct does it.
  static __device__ __forceinline__ void multiply_groups(const Stage (&stage)[kTiles], std::uint32_t bias,
                                                         const Reader& reader, const std::uint16_t* input, Sums& sums) {
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
      FragmentA a[kTiles][kFragments];
      GroupScale scale[kTiles];
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
        for (int f = 0; f < kFragments; ++f) stage[tile].codes.decode(part * kFragments + f, bias, a[tile][f]);
        scale[tile] = stage[tile].scale_of(part);
      }
#pragma unroll
      for (int first = 0; first < kGroups; first += kAtOnce) {
        FragmentB b[kAtOnce][kFragments];
        float products[kAtOnce][kTiles][4];
#pragma unroll
        for (int i = 0; i < kAtOnce; ++i) {
          reader.read(input, first + i, part, b[i]);
#pragma unroll
          for (int tile = 0; tile < kTiles; ++tile) cuda::multiply(products[i][tile], a[tile][0], b[i][0]);
        }
#pragma unroll
        for (int i = 0; i < kAtOnce * kTiles && kFragments == 2; ++i) {
          multiply_add(products[i / kTiles][i % kTiles], a[i % kTiles][kFragments - 1], b[i / kTiles][kFragments - 1]);
        }
#pragma unroll
        for (int i = 0; i < kAtOnce * kTiles * 4; ++i) {
          const int tile = i / 4 % kTiles;
          float& sum = sums[tile][first + i / 4 / kTiles][i % 4];
          sum = __fmaf_rn(scale[tile].scale[i % 4 / 2], products[i / 4 / kTiles][tile][i % 4], sum);
        }
      }
    }
  }

  /// Minimums of a chunk times the sums of its input.
  static __device__ __forceinline__ void add_minimums(const Stage (&stage)[kTiles], const std::uint16_t* chunk,
                                                      Sums& sums) {
    GroupMinimums<kPacking> minimums[kTiles];
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) minimums[tile] = stage[tile].minimum_fragments();
    const Place place = find_place();
    const std::uint16_t* from = chunk + place.input_column() * kSums + place.lane % 4 * GroupSums<kPacking>::kLaneStep;
#pragma unroll
    for (int group = 0; group < kGroups; ++group) {
      GroupSums<kPacking> b;
      b.load(from + group * 8 * kSums);
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) minimums[tile].add(b, sums[tile][group]);
    }
  }

  /// What a warp keeps on its way along the columns.
  struct Walk {
    std::uint32_t bias;
    int units;
    Reader reader;
  };

  /// One unit of the columns, whatever the weights.
  static __device__ __forceinline__ void multiply_any(const Stage (&stage)[kTiles], const Walk& walk, int unit,
                                                      const Shared& shared, Sums& sums) {
    const std::uint16_t* const input = shared.input[unit % kDepth];
    if constexpr (kIsGrouped) {
      multiply_groups(stage, walk.bias, walk.reader, input, sums);
      if constexpr (kShape.has_minimum) {
        if (unit % kChunkUnits == kChunkUnits - 1 || unit + 1 == walk.units) {
          add_minimums(stage, shared.sums[unit / kChunkUnits % 2], sums);
        }
      }
    } else {
      multiply_unit(stage, walk.bias, walk.reader, input, sums);
    }
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
    const Walk walk = {w.scale_bias, units, Reader::of(place)};
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
    for (int unit = 0; unit < units; ++unit) {
      wait_for_unit();
      ask_for(feed, unit + kDepth - 1, units);
      Stage now[kTiles];
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) {
        now[tile] = next[tile];
        if (unit + 1 < units) next[tile].load(cursor[tile], unit + 1);
      }
      multiply_any(now, walk, unit, shared, Stage::kGridCols > 0 ? part : sums);
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
