// Products of experts with few tokens each: reading the weights is the work, and there are many small
// matrices of it. A block takes a run of row tiles, in pairs (gate's and up's tile, or two of down) that follow each
// other through the used experts; each of its warps streams whole rows of tiles through registers and finishes them
// alone. What is left over when every warp has had as many is cut into segments of the columns, whose sums meet in
// shared memory.
//
// Sums are kept as the other kernels keep them, a segment of columns at a time (segments.h), then the segments in their
// order: a row's result does not depend on who shares the step, nor on how blocks and warps cut the work.
#pragma once

#include <cstdint>

#include "backend/cuda/experts/combine.cuh"
#include "backend/cuda/experts/few_stage.cuh"
#include "backend/cuda/experts/few_work.cuh"
#include "backend/cuda/experts/gate.cuh"
#include "backend/cuda/linear/narrow_input.cuh"
#include "backend/cuda/linear/product_job.cuh"
#include "backend/cuda/predecessor.cuh"

namespace vernier::cuda {

/// kGroups: of 8 columns (tokens), at most. kGated: a pair is the same tile of gate and up.
template <Packing kPacking, int kGroups, bool kGated>
struct FewProduct {
  using Stage = FewStage<kPacking>;
  static constexpr int kStepUnits = few_step_units(kPacking);
  static constexpr bool kHasGrid = Stage::kGridCols > 0;
  static constexpr int kStepsOfChunk = kChunkUnits / kStepUnits;
  static constexpr int kStepsOfGrid = kHasGrid ? kGridCols / kUnitCols / kStepUnits : 1;
  static constexpr int kSums = kGroups * 4;
  using Sums = float[2][kSums];

  const ExpertBatch& batch;
  const FewTask& task;
  const FewPlan& plan;
  const int* begin_of;    ///< the plan's, in constant memory
  std::uint16_t* staged;  ///< rows of the input, from the first place of the block's groups on
  float4* partials;       ///< [slot][segment][tile][group][lane]
  float4* totals;         ///< [warp][tile][group][lane]: not in registers, of which there are none to spare
  FewGroups& groups;      ///< in shared memory
  int first_group;        ///< of the block

  /// First step of a segment, or the end.
  [[nodiscard]] __device__ __forceinline__ int first_step(int segment) const { return begin_of[segment]; }
  /// How many of the block's groups are looked up in advance. With one token every warp looks its own up: it has one or
  /// two runs.
  [[nodiscard]] __device__ __forceinline__ int known_groups() const {
    return batch.groups.count != nullptr ? FewGroups::kMost : 0;
  }
  /// Of the block's groups; of the first ones what look_up() has found.
  [[nodiscard]] __device__ __forceinline__ FewGroup group_at(int number) const {
    const int at = number - first_group;
    return at < known_groups() ? groups.group[at] : group_of(batch, number);
  }
  [[nodiscard]] __device__ __forceinline__ const MatrixRef& matrix(int number, int expert, int tile) const {
    const int at = number - first_group;
    return at < known_groups() ? groups.matrix[at][tile] : table(tile)[expert];
  }
  [[nodiscard]] __device__ const MatrixRef* table(int tile) const { return batch.matrix[kGated ? tile : 0]; }
  /// All threads of a block: a warp looks one of the first groups up.
  __device__ __forceinline__ void look_up(int warp, int lane) const {
    if (known_groups() == 0) return;
    if (warp < FewGroups::kMost && (first_group + warp) * plan.pairs < plan.end) {
      const FewGroup group = group_of(batch, first_group + warp);
      if (lane == 0) groups.group[warp] = group;
      constexpr int kWords = sizeof(MatrixRef) / 8;
      if (group.expert >= 0 && lane < 2 * kWords) {
        const auto* const from = reinterpret_cast<const std::uint64_t*>(table(lane / kWords) + group.expert);
        reinterpret_cast<std::uint64_t*>(groups.matrix[warp])[lane] = from[lane % kWords];
      }
    }
    __syncthreads();
  }
  [[nodiscard]] __device__ int row_tile(int pair, int tile) const {
    return kGated ? pair : min(pair * 2 + tile, (batch.rows - 1) / kTileRows);
  }

  /// A warp's way through the weights' bytes, a step ahead of what it multiplies.
  struct Feed {
    FewWalk walk;
    const std::byte* codes[2] = {};  ///< the lane's, of the step that follows
    const std::byte* scales[2] = {};
    int next_row[2] = {};  ///< of a grid: bytes from the scales of row g to those of row g + 8
    int steps = 0;         ///< of the run, that are left
    int units = 0;         ///< of the row, that are left
  };

  /// A row's number in its grid, by a division of 32 bits: one of 64 costs more than all else here.
  static __device__ __forceinline__ unsigned grid_row_number(const WeightRef& w, int row) {
    const auto number = static_cast<unsigned>(w.first_row) + static_cast<unsigned>(min(row, w.rows - 1));
    return number / static_cast<unsigned>(w.scale_block_rows);
  }
  __device__ void enter(Feed& feed, int lane) const {
    FewRun run;
    while (feed.walk.next(plan, run)) {
      const int expert = group_at(run.group).expert;
      if (expert < 0) continue;
      const int step = first_step(run.segment);
      feed.steps = first_step(run.end_segment) - step;
      feed.units = plan.units - step * kStepUnits;
#pragma unroll
      for (int tile = 0; tile < 2; ++tile) {
        const WeightRef& w = matrix(run.group, expert, tile).weight;
        const std::int64_t at = row_tile(run.pair, tile);
        feed.codes[tile] = w.codes + (at * plan.units + step * kStepUnits) * unit_bytes(kPacking) + lane * 16;
        if constexpr (kHasGrid) {
          const int row = static_cast<int>(at) * kTileRows + lane / 4;
          const unsigned first = grid_row_number(w, row);
          feed.scales[tile] = w.scales + first * w.scale_stride + step / kStepsOfGrid * static_cast<int>(sizeof(float));
          feed.next_row[tile] = static_cast<int>((grid_row_number(w, row + 8) - first) * w.scale_stride);
        } else if constexpr (scale_cols(kPacking) > 0) {
          constexpr int kLanes = scale_cols(kPacking) / 16;  // that share scales
          const std::int64_t chunk = at * chunks_of(plan) + step / kStepsOfChunk;
          feed.scales[tile] = w.scales + chunk * chunk_scale_bytes(kPacking) + lane / kLanes * 8;
        }
      }
      return;
    }
    feed.units = 0;
  }
  /// What a warp holds of the weights: the step that follows. All of it is asked for at once, while the step in front
  /// is multiplied: waiting for one load means waiting for all that have been issued since.
  struct Held {
    Stage stage[2];
    std::uint32_t scales[2][2];  ///< of a grid: those of rows g and g + 8; else [0]: of the step's units
  };
  /// Whether sums get their scale from the grid after the step that begins with `unit`.
  [[nodiscard]] __device__ __forceinline__ bool ends_grid_tile(int unit) const {
    return unit % (kStepsOfGrid * kStepUnits) == (kStepsOfGrid - 1) * kStepUnits || unit + kStepUnits >= plan.units;
  }
  /// Asks for the step that follows, if there is one.
  __device__ __forceinline__ void ask(Feed& feed, Held& held, int lane) const {
    if (feed.units <= 0) return;
    const int unit = plan.units - feed.units;
#pragma unroll
    for (int i = 0; i < kStepUnits; ++i) {
#pragma unroll
      for (int tile = 0; tile < 2; ++tile) {
        if (i < feed.units) load_unit_of(feed.codes[tile] + i * unit_bytes(kPacking), i, held.stage[tile]);
      }
    }
    const auto word = [](const std::byte* from) { return __ldg(reinterpret_cast<const std::uint32_t*>(from)); };
#pragma unroll
    for (int tile = 0; tile < 2; ++tile) {
      if constexpr (kHasGrid) {
        if (!ends_grid_tile(unit)) continue;
        held.scales[tile][0] = word(feed.scales[tile]);
        held.scales[tile][1] = word(feed.scales[tile] + feed.next_row[tile]);
        feed.scales[tile] += sizeof(float);
      } else if constexpr (scale_cols(kPacking) > 0) {
        held.scales[tile][0] = word(feed.scales[tile]);
        const bool ends_chunk = unit / kStepUnits % kStepsOfChunk == kStepsOfChunk - 1;
        feed.scales[tile] += ends_chunk ? chunk_scale_bytes(kPacking) - 4 * (kStepsOfChunk - 1) : 4;
      }
    }
    for (const std::byte*& codes : feed.codes) codes += kStepUnits * unit_bytes(kPacking);
    if (--feed.steps == 0) return enter(feed, lane);
    feed.units -= kStepUnits;
  }

  /// The lane's columns of the input, one in each group of 8. Those beyond the last are the last again.
  struct Columns {
    const std::uint16_t* at[kGroups];
    bool are_shared;  ///< all are in shared memory
  };
  static __device__ __forceinline__ uint4 load_input(const Columns& columns, int group, int col) {
    const std::uint16_t* const from = columns.at[group] + col;
    uint4 v;
    if (columns.are_shared) {
      asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];\n"
                   : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                   : "r"(static_cast<unsigned>(__cvta_generic_to_shared(from))));
    } else {
      v = *reinterpret_cast<const uint4*>(from);
    }
    return v;
  }
  __device__ __forceinline__ void find_columns(const FewGroup& group, int first_place, int lane,
                                               Columns& columns) const {
    columns.are_shared = !is_rounded() || group.first + group.count - first_place <= plan.most_rows;
#pragma unroll
    for (int i = 0; i < kGroups; ++i) {
      const int column = min(i * 8 + lane / 4, group.count - 1);
      const int at = is_rounded() ? group.first + column - first_place : 0;
      const std::uint16_t* row = staged + at * plan.stride;
      if (at >= plan.most_rows) row = batch.x.rounded + x_row(batch, group.first + column) * batch.x.rounded_stride;
      columns.at[i] = row + lane % 4 * 16;
    }
  }
  /// Else there is one row of fp32.
  [[nodiscard]] __device__ bool is_rounded() const { return batch.x.rounded != nullptr; }

  /// Copies the rows of the block's groups into shared memory, as many as have room.
  __device__ void stage_rows(int first_place, int warp, int lane) const {
    const FewGroup last = group_at((plan.end - 1) / plan.pairs);
    const int rows = min(last.first + last.count - first_place, plan.most_rows);
    const int pieces = plan.units * (kUnitCols / 8);
    for (int r = warp; r < rows; r += kFewWarps) {
      if (batch.groups.count == nullptr && expert_of(batch, first_place + r) < 0) continue;  // nobody wrote it
      const auto* const from =
          reinterpret_cast<const uint4*>(batch.x.rounded + x_row(batch, first_place + r) * batch.x.rounded_stride);
      auto* const to = reinterpret_cast<uint4*>(staged + r * plan.stride);
#pragma unroll 4
      for (int i = lane; i < pieces; i += 32) to[i] = __ldcg(from + i);
    }
  }

  template <int kUsed>
  __device__ __forceinline__ void multiply_unit(const Stage (&stage)[2], int i, const std::uint32_t (&bias)[2],
                                                const Columns& columns, int unit, Sums& sums) const {
    uint4 b[kUsed][2];
#pragma unroll
    for (int group = 0; group < kUsed; ++group) {
      b[group][0] = load_input(columns, group, (unit + i) * kUnitCols);
      b[group][1] = load_input(columns, group, (unit + i) * kUnitCols + 8);
    }
#pragma unroll
    for (int tile = 0; tile < 2; ++tile) {
      FragmentA a[4];
      stage[tile].decode(i, bias[tile], a);
#pragma unroll
      for (int f = 0; f < 4; ++f) {
#pragma unroll
        for (int group = 0; group < kUsed; ++group) {
          const uint4& words = b[group][f / 2];
          const FragmentB part = f % 2 == 0 ? FragmentB{{words.x, words.y}} : FragmentB{{words.z, words.w}};
          multiply_add(reinterpret_cast<float(&)[4]>(sums[tile][group * 4]), a[f], part);
        }
      }
    }
  }

  /// A step, and the request for the one that follows. Where there is a grid, `part` are the sums that still lack its
  /// scale.
  template <int kUsed>
  __device__ __forceinline__ void multiply_step(Held& held, Feed& feed, const std::uint32_t (&bias)[2],
                                                const Columns& columns, int unit, int lane, Sums& part,
                                                Sums& sums) const {
    Held now = held;
    if constexpr (scale_cols(kPacking) > 0) {
#pragma unroll
      for (int tile = 0; tile < 2; ++tile) now.stage[tile].scales.x = now.scales[tile][0];
    }
    ask(feed, held, lane);
    Sums& to = kHasGrid ? part : sums;
#pragma unroll
    for (int i = 0; i < kStepUnits; ++i) {
      if (i == 0 || unit + i < plan.units) multiply_unit<kUsed>(now.stage, i, bias, columns, unit, to);
    }
    if constexpr (kHasGrid) {
      if (!ends_grid_tile(unit)) return;
#pragma unroll
      for (int i = 0; i < 8 * kUsed; ++i) {
        float& from = part[i / 4 % 2][i / 8 * 4 + i % 4];
        float& sum = sums[i / 4 % 2][i / 8 * 4 + i % 4];
        sum = __fmaf_rn(__uint_as_float(now.scales[i / 4 % 2][i % 4 / 2]), from, sum);
        from = 0.0F;
      }
    }
  }

  /// Where the partial sums of a slot's segment are, for a lane.
  [[nodiscard]] __device__ float4* partial(int slot, int segment, int lane) const {
    return partials + (slot * plan.segments + segment) * 2 * kGroups * 32 + lane;
  }

  /// Where a warp keeps the lane's totals of a pair of tiles.
  [[nodiscard]] __device__ __forceinline__ float4* own_totals() const {
    return totals + threadIdx.x / 32 * (2 * kGroups * 32) + threadIdx.x % 32;
  }
  static __device__ __forceinline__ float4 add(const float4& a, const float4& b) {
    return {__fadd_rn(a.x, b.x), __fadd_rn(a.y, b.y), __fadd_rn(a.z, b.z), __fadd_rn(a.w, b.w)};
  }

  /// Leaves the sums of a run with all segments in own_totals(), of another each segment's in its partial().
  template <int kUsed>
  __device__ __forceinline__ void multiply_run(const FewRun& run, const std::uint32_t (&bias)[2],
                                               const Columns& columns, Held& held, Feed& feed, int lane) const {
    int segment = run.segment;
    int end = first_step(segment + 1);
    Sums part = {};
    Sums sums = {};
    for (int step = first_step(segment); segment < run.end_segment;) {
      multiply_step<kUsed>(held, feed, bias, columns, step * kStepUnits, lane, part, sums);
      if (++step < end) continue;
      float4* const to = run.slot >= 0 ? partial(run.slot, segment, lane) : own_totals();
      const bool adds = run.slot < 0 && segment > 0;
#pragma unroll
      for (int tile = 0; tile < 2; ++tile) {
#pragma unroll
        for (int group = 0; group < kUsed; ++group) {
          float(&from)[4] = reinterpret_cast<float(&)[4]>(sums[tile][group * 4]);
          float4& total = to[(tile * kGroups + group) * 32];
          const float4 sum = {from[0], from[1], from[2], from[3]};
          total = adds ? add(total, sum) : sum;
#pragma unroll
          for (float& each : from) each = 0.0F;
        }
      }
      ++segment;
      end = first_step(segment + 1);
    }
  }

  /// The results of a pair of tiles from its totals.
  __device__ __forceinline__ void store(const FewGroup& group, int pair, int lane) const {
    const MatrixRef* const of[2] = {&matrix(group.number, group.expert, 0), &matrix(group.number, group.expert, 1)};
    const float4* const from = own_totals();
#pragma unroll 1
    for (int part = 0; part < kGroups && part * 8 < group.count; ++part) {
      const float4 sums[2] = {from[part * 32], from[(kGroups + part) * 32]};
      const auto sum = [&](int tile, int i) {
        return i == 0 ? sums[tile].x : i == 1 ? sums[tile].y : i == 2 ? sums[tile].z : sums[tile].w;
      };
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int column = part * 8 + lane % 4 * 2 + i % 2;
        const int row_in_tile = lane / 4 + i / 2 * 8;
        if (column >= group.count) continue;
        const auto value = [&](int tile, int row) {
          return finish_product(*of[tile], row, sum(tile, i) * of[tile]->weight.rescale, nullptr);
        };
        if constexpr (kGated) {
          const int row = pair * kTileRows + row_in_tile;
          if (row >= batch.rows) continue;
          store_terms(task.output.hidden + (group.first + column) * task.output.stride + row, 0, 1,
                      gated(task.output.spec, value(0, row), value(1, row)));
        } else {
          float* const y = batch.y[0] + y_row(batch, group.first + column) * batch.y_stride;
#pragma unroll
          for (int tile = 0; tile < 2; ++tile) {
            const int row = (pair * 2 + tile) * kTileRows + row_in_tile;
            if (row < batch.rows) y[row] = value(tile, row);
          }
        }
      }
    }
  }

  /// What follows when a pair of tiles has its sums: for one token also the sum over its experts, by the last of them.
  __device__ void finish(const FewGroup& group, int pair, int lane) const {
    if (group.expert >= 0) store(group, pair, lane);
    if constexpr (!kGated) {
      if (task.arrivals == nullptr) return;
      __threadfence();
      __syncwarp();
      unsigned before = 0;
      if (lane == 0) before = atomicAdd(task.arrivals + pair, 1U);
      before = __shfl_sync(0xFFFFFFFFU, before, 0);
      if (before + 1 != static_cast<unsigned>(batch.most_groups)) return;
      __threadfence();
      if (lane == 0) task.arrivals[pair] = 0;
      const int row = pair * 2 * kTileRows + lane;
      if (row >= batch.rows) return;
      float sum[1] = {task.combine.y[row]};
      add_experts(task.combine, 0, row, sum);
      task.combine.y[row] = sum[0];
    }
  }

  /// The input in shared memory, where it is one row of fp32: its first columns are on their way while the feed looks
  /// up its experts.
  struct StagedRow {
    const FewProduct& product;
    float4 first;
    int col;

    __device__ explicit StagedRow(const FewProduct& of) : product(of), col(static_cast<int>(threadIdx.x) * 4) {
      if (!of.is_rounded()) first = load_columns(of.batch.x.data, col, of.batch.cols);
    }
    __device__ void store() const {
      std::uint16_t* const to = product.staged;
      const int padded = product.plan.units * kUnitCols;
      if (col < padded) store_columns(to + col, 0, 1, first);
      const int rest = static_cast<int>(blockDim.x) * 4;
      if (rest < padded) {
        round_row(product.batch.x.data + rest, {to + rest, 0, product.batch.cols - rest, padded - rest}, 1);
      }
    }
  };

  /// A loaded value once it is there. Else what uses it later waits, each time, for all loads that are on their way.
  [[nodiscard]] __device__ __forceinline__ std::uint32_t arrived(std::uint32_t value) const {
    asm volatile("add.u32 %0, %0, %1;\n" : "+r"(value) : "r"(plan.slots >> 31));  // adds 0
    return value;
  }

  __device__ __forceinline__ void multiply_all(Feed& feed, Held& held, int first_place, int lane, int warp) const {
    FewWalk walk(plan, warp);
    FewRun run;
    FewGroup group;
    Columns columns = {};
    std::uint32_t bias[2] = {};
    while (walk.next(plan, run)) {
      if (run.group != group.number) {
        group = group_at(run.group);
        if (group.expert >= 0) {
          find_columns(group, first_place, lane, columns);
#pragma unroll
          for (int tile = 0; tile < 2; ++tile) {
            bias[tile] = arrived(matrix(run.group, group.expert, tile).weight.scale_bias);
          }
        }
      }
      if (group.expert < 0) {
        // computed elsewhere, or nowhere
      } else if (kGroups == 1 || group.count <= 8) {
        multiply_run<1>(run, bias, columns, held, feed, lane);
      } else {
        multiply_run<kGroups>(run, bias, columns, held, feed, lane);
      }
      if (run.slot < 0) finish(group, run.pair, lane);
    }
  }

  __device__ __forceinline__ void run_all(int warp, int lane) const {
    const StagedRow row(*this);
    look_up(warp, lane);
    Feed feed;
    Held held;
    feed.walk = FewWalk(plan, warp);
    enter(feed, lane);
    ask(feed, held, lane);
    if constexpr (!kGated) wait_for_predecessor();
    if (plan.begin == plan.end) return;
    const int first_place = group_at(first_group).first;
    if (is_rounded()) {
      stage_rows(first_place, warp, lane);
    } else {
      row.store();
    }
    __syncthreads();
    multiply_all(feed, held, first_place, lane, warp);
    if (plan.slots == 0) return;
    __syncthreads();
    if (warp < plan.slots) finish_slot(warp, lane);
  }

  /// Adds a slot's segments up.
  __device__ void finish_slot(int slot, int lane) const {
    const int pair = plan.end - plan.slots + slot;
    const FewGroup group = group_at(pair / plan.pairs);
#pragma unroll
    for (int i = 0; i < 2 * kGroups; ++i) {
      if (group.expert < 0 || i % kGroups * 8 >= group.count) continue;
      float4 total = {-0.0F, -0.0F, -0.0F, -0.0F};  // adds nothing, not even a sign
#pragma unroll
      for (int segment = 0; segment < kSegments; ++segment) {
        if (segment < plan.segments) total = add(total, partial(slot, segment, lane)[i * 32]);
      }
      own_totals()[i * 32] = total;
    }
    finish(group, pair % plan.pairs, lane);
  }
};

}  // namespace vernier::cuda
