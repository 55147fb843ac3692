// Products of experts with few tokens each and 4-bit weights: reading the weights is the work, and there are many small
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
#include "backend/cuda/experts/few_work.cuh"
#include "backend/cuda/experts/gate.cuh"
#include "backend/cuda/fragment/stage.cuh"
#include "backend/cuda/linear/narrow_input.cuh"
#include "backend/cuda/linear/product_job.cuh"
#include "backend/cuda/predecessor.cuh"

namespace vernier::cuda {

/// kGroups: of 8 columns (tokens), at most. kGated: a pair is the same tile of gate and up.
template <Packing kPacking, int kGroups, bool kGated>
struct FewProduct {
  using Stage = CodedStage<kPacking, kChunkUnits>;
  static constexpr int kLanesOfScales = scale_cols(kPacking) / 16;
  static constexpr int kSums = kGroups * 4;
  using Sums = float[2][kSums];

  const ExpertBatch& batch;
  const FewTask& task;
  const FewPlan& plan;
  const std::uint16_t* staged;  ///< the one row of the input, or null
  float4* partials;             ///< [slot][segment][tile][group][lane]

  [[nodiscard]] __device__ const MatrixRef& matrix(int expert, int tile) const {
    return batch.matrix[kGated ? tile : 0][expert];
  }
  [[nodiscard]] __device__ int row_tile(int pair, int tile) const {
    return kGated ? pair : min(pair * 2 + tile, (batch.rows - 1) / kTileRows);
  }

  /// A warp's way through the weights' bytes, a chunk ahead of what it multiplies.
  struct Feed {
    FewWalk walk;
    const std::byte* codes[2] = {};  ///< the lane's, of the chunk that follows
    const std::byte* scales[2] = {};
    int chunks = 0;  ///< of the run, that are left
    int units = 0;   ///< of the row, that are left
  };

  __device__ void enter(Feed& feed, int lane) const {
    FewRun run;
    while (feed.walk.next(plan, run)) {
      const int expert = expert_of(batch, run.group);
      if (expert < 0) continue;
      const int chunk = plan.segment_begin(run.segment);
      feed.chunks = plan.segment_begin(run.end_segment) - chunk;
      feed.units = plan.units - chunk * kChunkUnits;
#pragma unroll
      for (int tile = 0; tile < 2; ++tile) {
        const WeightRef& w = matrix(expert, tile).weight;
        const std::int64_t at = row_tile(run.pair, tile);
        feed.codes[tile] = w.codes + (at * plan.units + chunk * kChunkUnits) * kPieceBytes + lane * 16;
        feed.scales[tile] =
            w.scales + (at * plan.chunks + chunk) * chunk_scale_bytes(kPacking) + lane / kLanesOfScales * 8;
      }
      return;
    }
    feed.units = 0;
  }
  static __device__ __forceinline__ void load_scales(const Feed& feed, uint2 (&scales)[2]) {
    if (feed.units <= 0) return;
#pragma unroll
    for (int tile = 0; tile < 2; ++tile) scales[tile] = load_stream_half(feed.scales[tile]);
  }
  static __device__ __forceinline__ void load_unit(const Feed& feed, int i, int tile, Stage& stage) {
    if (i < feed.units) stage.codes[i] = load_stream(feed.codes[tile] + i * kPieceBytes);
  }
  __device__ __forceinline__ void advance(Feed& feed, int lane) const {
    if (feed.units <= 0) return;
    if (--feed.chunks == 0) return enter(feed, lane);
    feed.units -= kChunkUnits;
#pragma unroll
    for (int tile = 0; tile < 2; ++tile) {
      feed.codes[tile] += kChunkUnits * kPieceBytes;
      feed.scales[tile] += chunk_scale_bytes(kPacking);
    }
  }

  /// The lane's columns of the input, one in each group of 8. Those beyond the last are the last again.
  struct Columns {
    const std::uint16_t* at[kGroups];
  };
  __device__ __forceinline__ void find_columns(const FewGroup& group, int lane, Columns& columns) const {
#pragma unroll
    for (int i = 0; i < kGroups; ++i) {
      const int column = min(i * 8 + lane / 4, group.count - 1);
      const std::uint16_t* row = staged;
      if (staged == nullptr) row = batch.x.rounded + x_row(batch, group, column) * batch.x.rounded_stride;
      columns.at[i] = row + lane % 4 * 16;
    }
  }

  /// What a warp holds of the weights: the chunk at hand, whose units give way to those of the chunk that follows.
  struct Held {
    Stage stage[2];
    uint2 next_scales[2];
  };

  template <int kUsed>
  __device__ __forceinline__ void multiply_unit(Held& held, const Feed& feed, int i, const std::uint32_t (&bias)[2],
                                                const Columns& columns, int unit, Sums& sums) const {
    uint4 b[kUsed][2];
#pragma unroll
    for (int group = 0; group < kUsed; ++group) {
      const auto* from = reinterpret_cast<const uint4*>(columns.at[group] + (unit + i) * kUnitCols);
      b[group][0] = from[0];
      b[group][1] = from[1];
    }
#pragma unroll
    for (int tile = 0; tile < 2; ++tile) {
      FragmentA a[4];
      held.stage[tile].decode(i, bias[tile], a);
      load_unit(feed, i, tile, held.stage[tile]);
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

  /// A chunk, and the request for the one that follows.
  template <int kUsed>
  __device__ __forceinline__ void multiply_chunk(Held& held, Feed& feed, const std::uint32_t (&bias)[2],
                                                 const Columns& columns, int unit, int lane, Sums& sums) const {
#pragma unroll
    for (int tile = 0; tile < 2; ++tile) held.stage[tile].scales = held.next_scales[tile];
    load_scales(feed, held.next_scales);
    const int units = plan.units - unit;
    if (units >= kChunkUnits) {
#pragma unroll
      for (int i = 0; i < kChunkUnits; ++i) multiply_unit<kUsed>(held, feed, i, bias, columns, unit, sums);
    } else {
#pragma unroll
      for (int i = 0; i < kChunkUnits; ++i) {
        if (i < units) {
          multiply_unit<kUsed>(held, feed, i, bias, columns, unit, sums);
        } else {
          for (int tile = 0; tile < 2; ++tile) load_unit(feed, i, tile, held.stage[tile]);
        }
      }
    }
    advance(feed, lane);
  }

  /// Where the partial sums of a slot's segment are, for a lane.
  [[nodiscard]] __device__ float4* partial(int slot, int segment, int lane) const {
    return partials + (slot * plan.segments + segment) * 2 * kGroups * 32 + lane;
  }

  template <int kUsed>
  __device__ __forceinline__ void multiply_run(const FewRun& run, const std::uint32_t (&bias)[2],
                                               const Columns& columns, Held& held, Feed& feed, int lane,
                                               Sums& totals) const {
    int segment = run.segment;
    int end = plan.segment_begin(segment + 1);
    Sums sums = {};
    for (int chunk = plan.segment_begin(segment); segment < run.end_segment;) {
      multiply_chunk<kUsed>(held, feed, bias, columns, chunk * kChunkUnits, lane, sums);
      if (++chunk < end) continue;
#pragma unroll
      for (int tile = 0; tile < 2; ++tile) {
#pragma unroll
        for (int group = 0; group < kUsed; ++group) {
          float(&from)[4] = reinterpret_cast<float(&)[4]>(sums[tile][group * 4]);
          if (run.slot >= 0) {
            partial(run.slot, segment, lane)[(tile * kGroups + group) * 32] = {from[0], from[1], from[2], from[3]};
          }
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            totals[tile][group * 4 + i] = __fadd_rn(totals[tile][group * 4 + i], from[i]);
            from[i] = 0.0F;
          }
        }
      }
      ++segment;
      end = plan.segment_begin(segment + 1);
    }
  }

  /// The results of a pair of tiles from its sums.
  __device__ void store(const FewGroup& group, int pair, int lane, const Sums& totals) const {
#pragma unroll
    for (int i = 0; i < kSums; ++i) {
      const int column = i / 4 * 8 + lane % 4 * 2 + i % 2;
      const int row_in_tile = lane / 4 + i % 4 / 2 * 8;
      if (column >= group.count) continue;
      const auto value = [&](int tile, int row) {
        const MatrixRef& m = matrix(group.expert, tile);
        return finish_product(m, row, totals[tile][i] * m.weight.rescale, nullptr);
      };
      if constexpr (kGated) {
        const int row = pair * kTileRows + row_in_tile;
        if (row >= batch.rows) continue;
        store_terms(task.output.hidden + (group.first + column) * task.output.stride + row, 0, 1,
                    gated(task.output.spec, value(0, row), value(1, row)));
      } else {
        float* const y = batch.y[0] + y_row(batch, group, column) * batch.y_stride;
#pragma unroll
        for (int tile = 0; tile < 2; ++tile) {
          const int row = (pair * 2 + tile) * kTileRows + row_in_tile;
          if (row < batch.rows) y[row] = value(tile, row);
        }
      }
    }
  }

  /// What follows when a pair of tiles has its sums: for one token also the sum over its experts, by the last of them.
  __device__ void finish(const FewGroup& group, int pair, int lane, const Sums& totals) const {
    if (group.expert >= 0) store(group, pair, lane, totals);
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
      if (row < batch.rows) task.combine.y[row] = add_experts(task.combine, 0, row, task.combine.y[row]);
    }
  }

  /// A warp's share of the weights that the kernel of down reads first, on their way into the cache.
  __device__ void prefetch_next(const FewPlan& next, int warp, int lane) const {
    const int pair = next.begin + lane * kFewWarps + warp;
    if (lane >= kRoundsAhead || pair >= next.end) return;
    const int expert = expert_of(batch, pair / next.pairs);
    if (expert < 0) return;
    const WeightRef& w = next.matrix[expert].weight;
    const int tile = pair % next.pairs * 2;
    const int tiles = min(2, (w.rows + kTileRows - 1) / kTileRows - tile);
    if (w.packing != Packing::kE2M1ByE4M3 && w.packing != Packing::kE2M1ByE8M0) return;
    prefetch_bytes(w.codes + std::int64_t{tile} * next.units * kPieceBytes, tiles * next.units * kPieceBytes);
    const int scale_bytes = next.chunks * chunk_scale_bytes(w.packing);
    prefetch_bytes(w.scales + std::int64_t{tile} * scale_bytes, tiles * scale_bytes);
  }

  __device__ __forceinline__ void run_all(const FewPlan& next, int warp, int lane) const {
    Feed feed;
    Held held;
    feed.walk = FewWalk(plan, warp);
    enter(feed, lane);
    load_scales(feed, held.next_scales);
#pragma unroll
    for (int i = 0; i < kChunkUnits; ++i) {
#pragma unroll
      for (int tile = 0; tile < 2; ++tile) load_unit(feed, i, tile, held.stage[tile]);
    }
    advance(feed, lane);
    if constexpr (kGated) {
      prefetch_next(next, warp, lane);
    } else {
      wait_for_predecessor();
    }
    if (staged != nullptr) {
      StagedColumns row = {const_cast<std::uint16_t*>(staged), 0, batch.cols, plan.units * kUnitCols};
      round_row(batch.x.data, row, 1);
      __syncthreads();
    }
    FewWalk walk(plan, warp);
    FewRun run;
    FewGroup group;
    Columns columns = {};
    std::uint32_t bias[2] = {};
    while (walk.next(plan, run)) {
      if (run.group != group.number) {
        group = group_of(batch, run.group);
        if (group.expert >= 0) {
          find_columns(group, lane, columns);
#pragma unroll
          for (int tile = 0; tile < 2; ++tile) bias[tile] = matrix(group.expert, tile).weight.scale_bias;
        }
      }
      Sums totals;
#pragma unroll
      for (int i = 0; i < 2 * kSums; ++i) totals[i / kSums][i % kSums] = -0.0F;  // adds nothing, not even a sign
      if (group.expert < 0) {
        // computed elsewhere, or nowhere
      } else if (kGroups == 1 || group.count <= 8) {
        multiply_run<1>(run, bias, columns, held, feed, lane, totals);
      } else {
        multiply_run<kGroups>(run, bias, columns, held, feed, lane, totals);
      }
      if (run.slot < 0) finish(group, run.pair, lane, totals);
    }
    if (plan.slots == 0) return;
    __syncthreads();
    if (warp >= plan.slots) return;
    finish_slot(warp, lane);
  }

  /// Adds a slot's segments up.
  __device__ void finish_slot(int slot, int lane) const {
    const int pair = plan.end - plan.slots + slot;
    const FewGroup group = group_of(batch, pair / plan.pairs);
    Sums totals;
#pragma unroll
    for (int i = 0; i < 2 * kGroups; ++i) {
      float4 total = {-0.0F, -0.0F, -0.0F, -0.0F};
      if (group.expert >= 0 && i % kGroups * 8 < group.count) {
#pragma unroll 1
        for (int segment = 0; segment < plan.segments; ++segment) {
          const float4 sum = partial(slot, segment, lane)[i * 32];
          total = {__fadd_rn(total.x, sum.x), __fadd_rn(total.y, sum.y), __fadd_rn(total.z, sum.z),
                   __fadd_rn(total.w, sum.w)};
        }
      }
      float* const to = &totals[i / kGroups][i % kGroups * 4];
      to[0] = total.x;
      to[1] = total.y;
      to[2] = total.z;
      to[3] = total.w;
    }
    finish(group, pair % plan.pairs, lane, totals);
  }
};

}  // namespace vernier::cuda
