// Products with few tokens: reading the weights is the work. A block takes one or two row tiles at a time; its eight
// warps cut the columns among them, each streams its share of the packed weights into registers, a stage ahead of what
// it multiplies (before the input is there, and beyond the end of a row tile), and multiplies on tensor cores with
// weights as the 16 rows and tokens (each of their bf16 terms one) as the columns. The eight partial sums are added in
// their order at the end, by one warp where one does, while the others go on. Where rows are short, fewer warps share a
// tile and the block takes more of them.
//
// The columns' cut depends on the weight alone, so a row's result does not depend on how many tokens there are.
#pragma once

#include <cstdint>

#include "backend/cuda/experts/gate.cuh"
#include "backend/cuda/fragment/group_stage.cuh"
#include "backend/cuda/linear/narrow_barrier.cuh"
#include "backend/cuda/linear/narrow_input.cuh"
#include "backend/cuda/linear/narrow_jobs.cuh"
#include "backend/cuda/linear/product_job.cuh"
#include "backend/cuda/linear/segments.h"
#include "backend/cuda/predecessor.cuh"

namespace vernier::cuda {

/// What a warp loads at a time.
template <Packing kPacking>
struct NarrowStage {
  using Type = typename StageOf<kPacking>::Type;
};
/// Two units: one alone keeps too few bytes on their way.
template <class Stage>
struct PairOfStages {
  static constexpr int kUnits = 2;
  static constexpr int kGridCols = 0;
  static constexpr int kGroupCols = 0;
  Stage unit_of[kUnits];
  __device__ __forceinline__ void load(const TileCursor& at, int unit) {
    unit_of[0].load(at, unit);
    if (unit + 1 < at.units) unit_of[1].load(at, unit + 1);
  }
  __device__ __forceinline__ void decode(int i, std::uint32_t bias, FragmentA (&out)[4]) const {
    unit_of[i].decode(0, bias, out);
  }
  __device__ __forceinline__ void decode_rest(int i, FragmentA (&out)[4]) const requires(HasRest<Stage>) {
    unit_of[i].decode_rest(0, out);
  }
};
template <Packing kPacking>
requires(code_bits(kPacking) == 16) struct NarrowStage<kPacking> {
  using Type = PairOfStages<typename StageOf<kPacking>::Type>;
};

/// Where a block has its input: in shared memory, the same for all its runs, or each run's rows of terms in global.
enum class InputPlace : std::uint8_t { kShared, kGlobal };

/// kTiles row tiles (2: of one weight, or where kGated the same tile of gate and up) and 8 * kGroups columns.
template <Packing kPacking, int kTiles, int kGroups, InputPlace kInput, bool kGated = false>
struct NarrowProduct {
  using Stage = typename NarrowStage<kPacking>::Type;
  static constexpr GroupShape kShape = group_shape(kPacking);
  static constexpr int kThreads = kSegments * 32;
  static constexpr int kColumns = kGroups * 8;
  static constexpr Packing kPackedAs = kPacking;
  static constexpr bool kIsGated = kGated;
  static constexpr bool kIsStaged = kInput == InputPlace::kShared;
  static constexpr int kRowTiles = kGated ? 1 : kTiles;  ///< of each matrix
  /// Threads for which a multiprocessor shall have registers at once.
  static constexpr int kMostThreads = kTiles * kGroups > 4 || (kGroups > 2 && Stage::kGroupCols > 0) ? kThreads
                                                                                                     : 2 * kThreads;
  using Sums = float[kTiles][kGroups][4];

  /// Partial sums of all warps in one run.
  static __host__ __device__ constexpr int set_size(int columns) { return kSegments * kTiles * columns * kTileRows; }
  /// A block's shared memory: two sets of partial sums, the input.
  struct Memory {
    int input;
    int size;
    __host__ __device__ explicit Memory(const NarrowPlan& plan)
        : input(2 * set_size(plan.columns) * static_cast<int>(sizeof(float))),
          size(input + (kIsStaged ? plan.columns * plan.stride * 2 : 0)) {}
  };
  /// The partial sums of all warps: [warp][tile][column][row].
  struct Partials {
    float* data;
    int columns;
    [[nodiscard]] __device__ float& at(int warp, int tile, int column, int row) const {
      return data[((warp * kTiles + tile) * columns + column) * kTileRows + row];
    }
  };

  static __device__ const MatrixRef& matrix(const auto& jobs, const NarrowJob& job, int tile) {
    return jobs.matrix(job, kGated ? tile : job.which);
  }
  /// How a block's warps are dealt: 2^log_warps share a row tile (or two).
  struct Deal {
    int log_warps;
    [[nodiscard]] __host__ __device__ int warps() const { return 1 << log_warps; }
    [[nodiscard]] __host__ __device__ int copies() const { return kSegments >> log_warps; }
    /// Of the calling warp.
    [[nodiscard]] __device__ int copy() const { return static_cast<int>(threadIdx.x) / 32 >> log_warps; }
    [[nodiscard]] __device__ int warp() const { return static_cast<int>(threadIdx.x) / 32 & (warps() - 1); }
  };
  static __host__ __device__ Deal deal(int units) {
    const int warps = warps_per_tile(units);
    return {warps == 8 ? 3 : warps == 4 ? 2 : warps == 2 ? 1 : 0};
  }
  static __device__ int row_tile(const NarrowJob& job, Deal deal, int copy, int tile) {
    return (job.tile * deal.copies() + copy) * kRowTiles + (kGated ? 0 : tile);
  }

  /// All threads of a block.
  static __device__ void stage_input(const auto& run, int cols, std::uint16_t* shared) {
    const NarrowPlan& plan = run.jobs.plan;
    const InputView& x = run.jobs.x();
    StagedColumns column = {shared, plan.stride, cols, (cols + kUnitCols - 1) / kUnitCols * kUnitCols};
    for (int token = 0; token < run.tokens.count; ++token) {
      const std::int64_t row = run.jobs.x_row(run.job, run.tokens.first + token);
      if (x.rounded == nullptr) {
        round_row<kPacking>(x.data + row * x.stride, column, x.terms);
        column.to += x.terms * plan.stride;
        continue;
      }
      for (int term = 0; term < x.terms; ++term) {
        copy_row(x.rounded + (row * x.terms + term) * x.rounded_stride, column.to,
                 static_cast<int>(input_stride(kPacking, column.padded / kUnitCols)));
        column.to += plan.stride;
      }
    }
  }

  /// The lane's columns of B, one in each group of 8. Those beyond the last are the last again: their sums are dropped.
  struct Columns {
    const std::uint16_t* at[kGroups];
    int to_sums;  ///< from there to the lane's place among the sums of the first chunk
  };
  static __device__ Columns find_columns(const auto& run, const std::uint16_t* shared) {
    Columns columns;
    const InputView& x = run.jobs.x();
    const int lane = static_cast<int>(threadIdx.x) % 32;
    columns.to_sums =
        matrix(run.jobs, run.job, 0).weight.units * kUnitCols + lane % 4 * (GroupSums<kPacking>::kLaneStep - kLaneCols);
#pragma unroll
    for (int group = 0; group < kGroups; ++group) {
      const int column = min(group * 8 + lane / 4, run.tokens.count * x.terms - 1);
      if constexpr (kIsStaged) {
        columns.at[group] = shared + column * run.jobs.plan.stride + lane % 4 * kLaneCols;
      } else {
        const int token = x.terms == 1 ? column : column / 3;
        const std::int64_t row =
            run.jobs.x_row(run.job, run.tokens.first + token) * x.terms + (column - token * x.terms);
        columns.at[group] = x.rounded + row * x.rounded_stride + lane % 4 * kLaneCols;
      }
    }
    return columns;
  }

  /// A lane's part of B in one unit: the words of fragment f are half f % 2 of group f / 2's.
  using InputUnit = uint4[kGroups][2];
  /// How far apart the lanes t of a column begin, and the two halves of their 16 columns.
  static constexpr int kLaneCols = Stage::kGroupCols == 0 ? 16 : Stage::kGroupCols / 4;
  static constexpr int kHalfCols = Stage::kGroupCols == 0 ? 8 : 32;

  static __device__ __forceinline__ void load_unit(const Columns& columns, int unit, InputUnit& b) {
#pragma unroll
    for (int group = 0; group < kGroups; ++group) {
      const std::uint16_t* from = columns.at[group] + unit * kUnitCols;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        if constexpr (Stage::kGroupCols == 16) {
          const uint2 first = *reinterpret_cast<const uint2*>(from + half * kHalfCols);
          const uint2 second = *reinterpret_cast<const uint2*>(from + half * kHalfCols + 16);
          b[group][half] = make_uint4(first.x, first.y, second.x, second.y);
        } else {
          b[group][half] = *reinterpret_cast<const uint4*>(from + half * kHalfCols);
        }
      }
    }
  }
  static __device__ __forceinline__ FragmentB fragment_of(const uint4 (&b)[2], int fragment) {
    const uint4& words = b[fragment / 2];
    return fragment % 2 == 0 ? FragmentB{{words.x, words.y}} : FragmentB{{words.z, words.w}};
  }

  using Biases = std::uint32_t[kTiles];

  static __device__ __forceinline__ void multiply_unit(const Stage (&stage)[kTiles], int i, const Biases& bias,
                                                       const InputUnit& b, Sums& sums) {
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
      decode_terms(stage[tile], i, bias[tile], [&](const FragmentA(&a)[4]) { multiply_fragments(a, b, sums[tile]); });
    }
  }
  static __device__ __forceinline__ void multiply_fragments(const FragmentA (&a)[4], const InputUnit& b,
                                                            float (&sums)[kGroups][4]) {
#pragma unroll
    for (int fragment = 0; fragment < 4; ++fragment) {
#pragma unroll
      for (int group = 0; group < kGroups; ++group) {
        multiply_add(sums[group], a[fragment], fragment_of(b[group], fragment));
      }
    }
  }

  /// Weights whose decoded codes lack the scale of their group: it multiplies the group's sum.
  static __device__ __forceinline__ void multiply_groups(const Stage (&stage)[kTiles], int i, const Biases& bias,
                                                         const InputUnit& b, Sums& sums) {
    constexpr int kFragments = Stage::kGroupCols / 16;  // of a group
    FragmentA a[kTiles][4];
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) stage[tile].decode(i, bias[tile], a[tile]);
#pragma unroll
    for (int at = 0; at < 4 / kFragments; ++at) {
#pragma unroll
      for (int group = 0; group < kGroups; ++group) {
#pragma unroll
        for (int tile = 0; tile < kTiles; ++tile) {
          const int first = at * kFragments;
          float part[4];
          cuda::multiply(part, a[tile][first], fragment_of(b[group], first));
          if constexpr (kFragments == 2) multiply_add(part, a[tile][first + 1], fragment_of(b[group], first + 1));
          const GroupScale scale = stage[tile].scale_of(i, at);
#pragma unroll
          for (int j = 0; j < 4; ++j) {
            sums[tile][group][j] = __fmaf_rn(scale.scale[j / 2], part[j], sums[tile][group][j]);
          }
        }
      }
    }
  }

  /// Minimums of a chunk times the sums of its input.
  static __device__ __forceinline__ void add_minimums(const Stage (&stage)[kTiles], int chunk, const Columns& columns,
                                                      Sums& sums) {
    GroupMinimums<kPacking> minimums[kTiles];
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) minimums[tile] = stage[tile].minimum_fragments();
#pragma unroll
    for (int group = 0; group < kGroups; ++group) {
      GroupSums<kPacking> b;
      b.load(columns.at[group] + columns.to_sums + chunk * sums_of_chunk(kShape));
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) minimums[tile].add(b, sums[tile][group]);
    }
  }

  /// What a warp needs of a grid of scales: its rows'.
  struct Grid {
    const float* row[kTiles][2];
  };
  struct GridScales {
    float of[kTiles][2];
  };
  static __device__ __forceinline__ GridScales load_scales(const Grid& grid, int unit) {
    GridScales scales;
    constexpr int kCols = Stage::kGridCols > 0 ? Stage::kGridCols : 1;
#pragma unroll
    for (int i = 0; i < 2 * kTiles; ++i) scales.of[i / 2][i % 2] = grid.row[i / 2][i % 2][unit * kUnitCols / kCols];
    return scales;
  }
  /// Sums of one tile of the grid, times its scale.
  static __device__ __forceinline__ void add_scaled(const GridScales& scales, Sums& part, Sums& sums) {
#pragma unroll
    for (int i = 0; i < kTiles * kGroups * 4; ++i) {
      const int tile = i / 4 / kGroups;
      float& from = part[tile][i / 4 % kGroups][i % 4];
      float& to = sums[tile][i / 4 % kGroups][i % 4];
      to = __fmaf_rn(scales.of[tile][i % 4 / 2], from, to);
      from = 0.0F;
    }
  }

  /// A warp's share of the columns, in units.
  struct Range {
    int begin;
    int end;
  };
  static __device__ Range find_range(int units, Deal deal) {
    const int warp = deal.warp();
    if (deal.warps() == kSegments) return {segment_begin(units, warp), segment_begin(units, warp + 1)};
    const int begin = min(warp * kChunkUnits, units);
    return {begin, min(begin + kChunkUnits, units)};
  }
  /// The warp's row tile in the weight. A tile too many repeats the last; its sums are dropped.
  static __device__ int find_tile(const NarrowJob& job, Deal deal, int tile, int rows) {
    return min(row_tile(job, deal, deal.copy(), tile), (rows - 1) / kTileRows);
  }

  /// A warp's way through the weights' bytes, ahead of the one that multiplies them.
  template <class Jobs>
  struct Feed {
    const Jobs& jobs;
    Walk<Jobs> walk;
    Range range;  ///< of every run
    int unit = 0;
    TileCursor cursor[kTiles];

    __device__ Feed(const Jobs& all, const Walk<Jobs>& from, Range columns) : jobs(all), walk(from), range(columns) {
      enter();
    }
    /// Asks for the stage that follows, if there is one.
    __device__ __forceinline__ void ask(Stage (&next)[kTiles]) {
      if (unit >= range.end) return;
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) next[tile].load(cursor[tile], unit);
      unit += Stage::kUnits;
      if (unit >= range.end) {
        walk.step(jobs);
        enter();
      }
    }

   private:
    __device__ void enter() {
      unit = walk.ended(jobs) ? range.end : range.begin;
      if (unit >= range.end) return;
      const NarrowJob job = walk.job(jobs);
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) {
        const WeightRef& w = matrix(jobs, job, tile).weight;
        const int at = find_tile(job, deal(w.units), tile, w.rows);
        cursor[tile] = tile_cursor<kPacking>(w, at, static_cast<int>(threadIdx.x) % 32);
      }
    }
  };

  static __device__ __forceinline__ void multiply_stage(const Stage (&stage)[kTiles], int unit, int units,
                                                        const Biases& bias, const Columns& columns, Sums& sums) {
#pragma unroll
    for (int i = 0; i < Stage::kUnits; ++i) {
      if (i >= units) break;
      InputUnit b;
      load_unit(columns, unit + i, b);
      if constexpr (Stage::kGroupCols > 0) {
        multiply_groups(stage, i, bias, b, sums);
      } else {
        multiply_unit(stage, i, bias, b, sums);
      }
    }
    if constexpr (kShape.has_minimum) add_minimums(stage, unit / kChunkUnits, columns, sums);
  }

  template <class Jobs>
  static __device__ void multiply(const NarrowRun<Jobs>& run, Stage (&next)[kTiles], Feed<Jobs>& feed,
                                  const Columns& columns, Sums& sums) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    Biases bias;
    Grid grid;
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
      const WeightRef& w = matrix(run.jobs, run.job, tile).weight;
      bias[tile] = w.scale_bias;
      if constexpr (Stage::kGridCols > 0) {
        const int row = find_tile(run.job, deal(w.units), tile, w.rows) * kTileRows + lane / 4;
        grid.row[tile][0] = grid_row(w, min(row, w.rows - 1));
        grid.row[tile][1] = grid_row(w, min(row + 8, w.rows - 1));
      }
    }
    Sums part = {};
    for (int unit = feed.range.begin; unit < feed.range.end; unit += Stage::kUnits) {
      GridScales scales;
      if constexpr (Stage::kGridCols > 0) scales = load_scales(grid, unit);
      Stage now[kTiles];
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) now[tile] = next[tile];
      feed.ask(next);
      Sums& to = Stage::kGridCols > 0 ? part : sums;
      if (unit + Stage::kUnits <= feed.range.end) {
        multiply_stage(now, unit, Stage::kUnits, bias, columns, to);
      } else {
        multiply_stage(now, unit, feed.range.end - unit, bias, columns, to);
      }
      if constexpr (Stage::kGridCols > 0) add_scaled(scales, part, sums);
    }
  }

  static __device__ void leave_partials(const Sums& sums, const Partials& partials) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int warp = static_cast<int>(threadIdx.x) / 32;
#pragma unroll
    for (int i = 0; i < kTiles * kGroups * 4; ++i) {
      const int tile = i / 4 / kGroups;
      const int column = i / 4 % kGroups * 8 + lane % 4 * 2 + i % 2;
      if (column < partials.columns) {
        partials.at(warp, tile, column, lane / 4 + i % 4 / 2 * 8) = sums[tile][i / 4 % kGroups][i % 4];
      }
    }
  }

  /// The sum of a row and column, from the partial sums of warps [first, first + count).
  static __device__ __forceinline__ float add_partials(const Partials& partials, int first, int count, int tile,
                                                       int row, int column) {
    float total = partials.at(first, tile, column, row);
#pragma unroll
    for (int i = 1; i < kSegments; ++i) {
      if (i < count) total = __fadd_rn(total, partials.at(first + i, tile, column, row));
    }
    return total;
  }

  static constexpr int kStoredTiles = kGated ? 1 : kTiles;
  /// Of each run only as many warps as are needed wait for all partial sums, add them up and store the results, by
  /// turns; the others go on. Numbers of the hardware's barriers; 0 is that of __syncthreads().
  static constexpr int kFull = 1;
  static constexpr int kEmpty = 3;
  struct Storer {
    int count;   ///< of storing warps
    int number;  ///< this warp's among them; beyond: it isn't one
  };
  static __device__ Storer find_storer(const NarrowPlan& plan, Deal deal, int turn) {
    const int needed = (plan.tokens * deal.copies() * kStoredTiles * kTileRows + 31) / 32;
    return {min(needed, kSegments), (static_cast<int>(threadIdx.x) / 32 + turn) % kSegments};
  }

  template <class Jobs>
  static __device__ void store(const NarrowRun<Jobs>& run, const Storer& storer, const GatedOutput& gated_output,
                               const Partials& partials) {
    const Jobs& jobs = run.jobs;
    const NarrowJob& job = run.job;
    const int terms = jobs.x().terms;
    const Deal warps = deal(matrix(jobs, job, 0).weight.units);
    const int rows_of_token = warps.copies() * kStoredTiles * kTileRows;
    const int lane = static_cast<int>(threadIdx.x) % 32;
    for (int i = storer.number * 32 + lane; i < run.tokens.count * rows_of_token; i += storer.count * 32) {
      int token = 0;
      int place = i;
      for (; place >= rows_of_token; place -= rows_of_token) ++token;
      const int r = place % kTileRows;
      const int tile = place / kTileRows % kStoredTiles;
      const int copy = place / kTileRows / kStoredTiles;
      const int row = row_tile(job, warps, copy, tile) * kTileRows + r;
      if (row >= matrix(jobs, job, tile).weight.rows) continue;
      const auto sum_of = [&](int which) {
        const auto column = [&](int term) {
          return add_partials(partials, copy * warps.warps(), warps.warps(), which, r, token * terms + term);
        };
        const float sum = terms == 1 ? column(0) : add_terms(column(0), column(1), column(2));
        return sum * matrix(jobs, job, which).weight.rescale;
      };
      if constexpr (kGated) {
        const float gate = finish_product(matrix(jobs, job, 0), row, sum_of(0), nullptr);
        const float up = finish_product(matrix(jobs, job, 1), row, sum_of(1), nullptr);
        const std::int64_t y_row = jobs.y_row(job, run.tokens.first + token);
        store_terms(gated_output.hidden + y_row * terms * gated_output.stride + row, gated_output.stride, terms,
                    gated(gated_output.spec, gate, up));
      } else {
        float* const y = jobs.y(job, run.tokens.first + token) + row;
        *y = finish_product(matrix(jobs, job, tile), row, sum_of(tile), jobs.accumulate(job) ? y : nullptr);
      }
    }
  }

  /// All threads of a block. The first weights are asked for before the input is there.
  template <class Jobs>
  static __device__ void run(const Jobs& jobs, const GatedOutput& gated_output, unsigned char* memory) {
    const NarrowPlan& plan = jobs.plan;
    Walk<Jobs> walk(jobs);
    if (walk.ended(jobs)) return wait_for_predecessor();
    const Memory at(plan);
    auto* const input = reinterpret_cast<std::uint16_t*>(memory + at.input);
    const int units = matrix(jobs, walk.job(jobs), 0).weight.units;
    Feed<Jobs> feed(jobs, walk, find_range(units, deal(units)));
    Stage next[kTiles];
    feed.ask(next);
    wait_for_predecessor();
    if constexpr (kIsStaged) {
      const NarrowRun<Jobs> first = {jobs, walk.job(jobs), walk.tokens(jobs)};
      stage_input(first, matrix(jobs, first.job, 0).weight.cols, input);
      __syncthreads();
    }
    auto* const sums_of_warps = reinterpret_cast<float*>(memory);
    const Deal warps = deal(units);
    for (int turn = 0; !walk.ended(jobs); ++turn) {
      const int set = turn % 2;
      const Partials partials = {sums_of_warps + set * set_size(plan.columns), plan.columns};
      const Storer storer = find_storer(plan, warps, turn);
      {
        const NarrowRun<Jobs> run = {jobs, walk.job(jobs), walk.tokens(jobs)};
        Sums sums = {};
        multiply(run, next, feed, find_columns(run, input), sums);
        if (turn >= 2) wait_at<kEmpty>(set, kThreads + 32 * storer.count);
        leave_partials(sums, partials);
      }
      if (storer.number < storer.count) {
        wait_at<kFull>(set, kThreads);
        store<Jobs>({jobs, walk.job(jobs), walk.tokens(jobs)}, storer, gated_output, partials);
        pass_by<kEmpty>(set, kThreads + 32 * storer.count);
      } else {
        pass_by<kFull>(set, kThreads);
      }
      walk.step(jobs);
    }
  }
};

}  // namespace vernier::cuda
