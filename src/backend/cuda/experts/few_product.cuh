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
  const int* begin_of;    ///< the plan's, in constant memory
  std::uint16_t* staged;  ///< rows of the input, from the first place of the block's groups on
  float4* partials;       ///< [slot][segment][tile][group][lane]

  /// First chunk of a segment, or the end.
  [[nodiscard]] __device__ __forceinline__ int first_chunk(int segment) const { return begin_of[segment]; }
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
      const int chunk = first_chunk(run.segment);
      feed.chunks = first_chunk(run.end_segment) - chunk;
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
  __device__ __forceinline__ void find_columns(const FewGroup& group, int first_place, int lane,
                                               Columns& columns) const {
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
    const FewGroup last = group_of(batch, (plan.end - 1) / plan.pairs);
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
    int end = first_chunk(segment + 1);
    Sums sums = {};
    for (int chunk = first_chunk(segment); segment < run.end_segment;) {
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
      end = first_chunk(segment + 1);
    }
  }

  /// The results of a pair of tiles from its sums.
  __device__ void store(const FewGroup& group, int pair, int lane, const Sums& totals) const {
    const MatrixRef of[2] = {matrix(group.expert, 0), matrix(group.expert, 1)};
#pragma unroll
    for (int i = 0; i < kSums; ++i) {
      const int column = i / 4 * 8 + lane % 4 * 2 + i % 2;
      const int row_in_tile = lane / 4 + i % 4 / 2 * 8;
      if (column >= group.count) continue;
      const auto value = [&](int tile, int row) {
        return finish_product(of[tile], row, totals[tile][i] * of[tile].weight.rescale, nullptr);
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

  __device__ __forceinline__ void multiply_all(Feed& feed, Held& held, int first_place, int lane, int warp) const {
    FewWalk walk(plan, warp);
    FewRun run;
    FewGroup group;
    Columns columns = {};
    std::uint32_t bias[2] = {};
    while (walk.next(plan, run)) {
      if (run.group != group.number) {
        group = group_of(batch, run.group);
        if (group.expert >= 0) {
          find_columns(group, first_place, lane, columns);
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
  }

  __device__ __forceinline__ void run_all(const FewPlan& next, int warp, int lane) const {
    const StagedRow row(*this);
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
    if (plan.begin == plan.end) return;
    const int first_place = group_of(batch, plan.begin / plan.pairs).first;
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
    const FewGroup group = group_of(batch, pair / plan.pairs);
    Sums totals;
#pragma unroll
    for (int i = 0; i < 2 * kGroups; ++i) {
      const bool is_used = group.expert >= 0 && i % kGroups * 8 < group.count;
      float4 total = {-0.0F, -0.0F, -0.0F, -0.0F};
#pragma unroll
      for (int segment = 0; segment < kSegments; ++segment) {
        if (!is_used || segment >= plan.segments) continue;
        const float4 sum = partial(slot, segment, lane)[i * 32];
        total = {__fadd_rn(total.x, sum.x), __fadd_rn(total.y, sum.y), __fadd_rn(total.z, sum.z),
                 __fadd_rn(total.w, sum.w)};
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
