// Products of at most 16 columns of input on Hopper: reading the weights is the work. A block takes one or two row
// tiles at a time; its eight warps cut the columns among them by segments, as in narrow_product.cuh, whose results
// these are to the bit. But the weights come through a ring in shared memory that each warp has for itself: a stage is
// a chunk of the tiles, one lane asks for it by bulk copies, and a barrier of its own counts its bytes. A warp takes a
// stage into registers, asks for the next one in its place, and multiplies: no warp waits for another but for the sums'
// sake, the loop has few instructions beside those that decode, and weights on their way take neither registers nor the
// first-level cache.
//
// An input is with each warp (its own columns of it, before the first product), or comes through the ring too, chunk by
// chunk.
#pragma once

#include <cstdint>

#include "backend/cuda/fragment/ring_chunk.cuh"
#include "backend/cuda/linear/narrow_product.cuh"
#include "backend/cuda/linear/narrow_ring.h"
#include "backend/cuda/predecessor.cuh"

namespace vernier::cuda {

/// Where a block has its input.
enum class RingInput : std::uint8_t {
  kOwn,     ///< in shared memory, from fp32 or from rows of terms
  kChunks,  ///< with the weights, from rounded rows whose chunks are kRingStride * columns apart
};

/// kTiles row tiles (2: of one weight, or where kGated the same tile of gate and up) and 8 * kGroups columns.
template <Packing kPacking, int kTiles, int kGroups, RingInput kInput, bool kGated = false>
struct RingProduct {
  using Chunk = RingChunk<kPacking>;
  /// Whose way with partial sums it is.
  using Narrow = NarrowProduct<kPacking, kTiles, kGroups, InputPlace::kShared, kGated>;
  using Partials = typename Narrow::Partials;
  using Sums = float[kTiles][kGroups][4];
  static constexpr int kWarps = kSegments;
  static constexpr int kThreads = kWarps * 32;
  static constexpr Packing kPackedAs = kPacking;
  static constexpr bool kIsGated = kGated;
  static constexpr bool kIsOwn = kInput == RingInput::kOwn;
  static constexpr int kRowTiles = kGated ? 1 : kTiles;  ///< of each matrix
  /// Of a warp. What it multiplies is in registers, so that one is on its way even then.
  static constexpr int kStages = kTiles * kGroups > 1 || code_bits(kPacking) < (kIsOwn ? 8 : 16) ? 1 : 2;
  static constexpr int kCodeBytes = kChunkUnits * unit_bytes(kPacking);  ///< of a tile's chunk
  static constexpr int kScaleBytes = chunk_scale_bytes(kPacking);
  static constexpr int kWeightBytes = kTiles * (kCodeBytes + kScaleBytes);
  static constexpr bool kHasGrid = Chunk::kGridCols > 0;
  /// Whether a stage fits into registers, so that its place is free before it is multiplied. Else it is read as it is
  /// needed.
  static constexpr int kStageRegisters =
      kTiles * code_bits(kPacking) * 4 + (kIsOwn ? 0 : kGroups * 32) + (kHasGrid ? kTiles * 8 : 0);
  static constexpr bool kTakesFirst = kStageRegisters <= 96;

  /// A block's shared memory: the rings, whose stages end in input; an input of its own; two sets of partial sums.
  struct Memory {
    int stage;
    int input;
    int sums;
    int barriers;
    int size;
    __host__ __device__ explicit Memory(const NarrowPlan& plan)
        : stage(kWeightBytes + (kIsOwn ? 0 : plan.columns * kRingStride * 2)),
          input(kWarps * kStages * stage),
          sums(input + (kIsOwn ? plan.columns * plan.stride * 2 : 0)),
          barriers(sums + 2 * Narrow::set_size(plan.columns) * static_cast<int>(sizeof(float))),
          size(barriers + kWarps * kStages * 8) {}
  };

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

  /// Chunks of a row.
  struct Range {
    int begin;
    int end;
  };
  static __device__ Range find_range(int units) {
    const int warp = static_cast<int>(threadIdx.x) / 32;
    const auto chunk = [&](int unit) { return (unit + kChunkUnits - 1) / kChunkUnits; };
    return {chunk(segment_begin(units, warp)), chunk(segment_begin(units, warp + 1))};
  }
  static __device__ const MatrixRef& matrix(const LinearJobs& jobs, const NarrowJob& job, int tile) {
    return jobs.matrix(job, kGated ? tile : job.which);
  }
  static __device__ int last_tile(const WeightRef& w) { return (w.rows - 1) / kTileRows; }

  /// A warp's ring, by addresses in shared memory.
  struct Ring {
    std::uint32_t stages;
    std::uint32_t barriers;
    int stage_bytes;
    [[nodiscard]] __device__ std::uint32_t stage(int slot) const { return stages + slot * stage_bytes; }
    [[nodiscard]] __device__ std::uint32_t barrier(int slot) const { return barriers + slot * 8; }
  };

  /// A warp's way through the weights' bytes, ahead of the one that multiplies them.
  struct Feed {
    const LinearJobs& jobs;
    Range range;
    int units;
    int number;  ///< of the job
    int chunk = 0;
    const std::byte* codes = nullptr;  ///< of the first tile
    const std::byte* scales = nullptr;
    bool has_second = true;  ///< of two tiles of a weight; else the first again, whose sums are dropped

    __device__ Feed(const LinearJobs& all, Range columns, int units_of_row)
        : jobs(all), range(columns), units(units_of_row), number(static_cast<int>(blockIdx.x)) {
      enter();
    }
    [[nodiscard]] __device__ bool ended() const { return number >= jobs.count() || range.begin == range.end; }

    /// One lane: asks for the weights of a stage and, unless there is none yet, its input. `barrier` is the slot's.
    __device__ __forceinline__ void ask(const Ring& ring, int slot, std::uint32_t barrier, bool has_input) const {
      const std::uint32_t to = ring.stage(slot);
      const int count = min(kChunkUnits, units - chunk * kChunkUnits);
      const int code_bytes = count * unit_bytes(kPacking);
      arrive_expecting(barrier, kTiles * (code_bytes + kScaleBytes) + ring.stage_bytes - kWeightBytes);
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) {
        bulk_copy_stream(to + tile * kCodeBytes, codes + (tile > 0 ? to_codes() : 0), code_bytes, barrier);
        if constexpr (kScaleBytes > 0) {
          bulk_copy_stream(to + kTiles * kCodeBytes + tile * kScaleBytes, scales + (tile > 0 ? to_scales() : 0),
                           kScaleBytes, barrier);
        }
      }
      if (!kIsOwn && has_input) ask_input(ring, slot, barrier, chunk);
    }
    __device__ __forceinline__ void ask_input(const Ring& ring, int slot, std::uint32_t barrier, int of_chunk) const {
      const int bytes = ring.stage_bytes - kWeightBytes;
      bulk_copy(ring.stage(slot) + kWeightBytes, jobs.x().rounded + std::int64_t{of_chunk} * (bytes / 2), bytes,
                barrier);
    }
    __device__ __forceinline__ void step() {
      codes += kCodeBytes;
      scales += kScaleBytes;
      if (++chunk < range.end) return;
      number += static_cast<int>(gridDim.x);
      enter();
    }

   private:
    [[nodiscard]] __device__ int row_codes() const { return units * unit_bytes(kPacking); }
    [[nodiscard]] __device__ int row_scales() const { return (units + kChunkUnits - 1) / kChunkUnits * kScaleBytes; }
    /// From the first tile to the second.
    [[nodiscard]] __device__ std::int64_t to_codes() const {
      if constexpr (kGated) return jobs.batch.matrix[1].weight.codes - jobs.batch.matrix[0].weight.codes;
      return has_second ? row_codes() : 0;
    }
    [[nodiscard]] __device__ std::int64_t to_scales() const {
      if constexpr (kGated) return jobs.batch.matrix[1].weight.scales - jobs.batch.matrix[0].weight.scales;
      return has_second ? row_scales() : 0;
    }
    __device__ void enter() {
      chunk = range.begin;
      if (number >= jobs.count()) return;
      const NarrowJob job = jobs.job(number);
      const WeightRef& w = matrix(jobs, job, 0).weight;
      const int tile = job.tile * kRowTiles;
      codes = w.codes + std::int64_t{tile} * row_codes() + chunk * kCodeBytes;
      scales = w.scales + std::int64_t{tile} * row_scales() + chunk * kScaleBytes;
      if constexpr (kRowTiles > 1) has_second = tile < last_tile(w);
    }
  };

  /// A lane's fours of columns of a row of fp32, up to out.padded. Several loads are on their way at once.
  static __device__ void round_columns_from(const float* x, const StagedColumns& out, int terms, int begin) {
    constexpr int kStep = 32 * 4;
    constexpr int kAtOnce = 8;
    const bool whole = (reinterpret_cast<std::uintptr_t>(x) & 15) == 0 && out.cols % 4 == 0;
    for (int first = begin; first < out.padded; first += kStep * kAtOnce) {
      float4 v[kAtOnce];
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        const int col = first + i * kStep;
        if (!whole) {
          v[i] = load_columns(x, col, col < out.padded ? out.cols : 0);
        } else {
          v[i] = col < min(out.cols, out.padded) ? *reinterpret_cast<const float4*>(x + col) : make_float4(0, 0, 0, 0);
        }
      }
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        const int col = first + i * kStep;
        if (col < out.padded) store_columns(out.to + col, out.stride, terms, v[i]);
      }
    }
  }
  /// A warp takes its columns of every row of the input.
  static __device__ void take_input(const LinearJobs& jobs, Range range, std::uint16_t* shared) {
    const InputView& x = jobs.x();
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const WeightRef& w = jobs.batch.matrix[0].weight;
    const int first = range.begin * kChunkCols;
    const int end = min(range.end * kChunkCols, w.units * kUnitCols);
    const int stride = jobs.plan.stride;
    for (int token = 0; token < jobs.batch.tokens; ++token) {
      if (x.rounded == nullptr) {
        const StagedColumns out = {shared + token * x.terms * stride, stride, w.cols, end};
        round_columns_from(x.data + token * x.stride, out, x.terms, first + lane * 4);
        continue;
      }
      for (int row = token * x.terms; row < (token + 1) * x.terms; ++row) {
        copy_eights(x.rounded + row * x.rounded_stride, shared + row * stride, first + lane * 8, end, 32 * 8);
      }
    }
    __syncwarp();
  }

  /// Where the lane's columns of B begin: those of the row or, within a stage, of the chunk. Columns beyond the last
  /// are the last again: their sums are dropped.
  using Columns = std::uint32_t[kGroups];
  static __device__ void find_columns(const NarrowPlan& plan, std::uint32_t input, Columns& columns) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
    for (int group = 0; group < kGroups; ++group) {
      const int column = min(group * 8 + lane / 4, plan.columns - 1);
      const int at = column * (kIsOwn ? plan.stride : kRingStride) + lane % 4 * kLaneCols;
      columns[group] = (kIsOwn ? input : kWeightBytes) + at * 2;
    }
  }
  static constexpr int kLaneCols = kUnitCols / 4;

  /// A lane's part of B in one unit: the words of fragment f are half f % 2 of group f / 2's.
  using InputUnit = uint4[kGroups][2];
  static __device__ __forceinline__ void load_unit(const Columns& columns, std::uint32_t at, InputUnit& b) {
#pragma unroll
    for (int i = 0; i < 2 * kGroups; ++i) b[i / 2][i % 2] = load_shared(columns[i / 2] + at + i % 2 * 16);
  }

  /// What a warp needs of the weights that its job multiplies.
  struct Rows {
    std::uint32_t bias[kTiles];
    const float* grid[kTiles][2];
    __device__ Rows(const LinearJobs& jobs, const NarrowJob& job) {
      const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) {
        const WeightRef& w = matrix(jobs, job, tile).weight;
        bias[tile] = w.scale_bias;
        if constexpr (kHasGrid) {
          const int at = min(job.tile * kRowTiles + (kGated ? 0 : tile), last_tile(w));
          const int row = at * kTileRows + lane / 4;
          grid[tile][0] = grid_row(w, min(row, w.rows - 1));
          grid[tile][1] = grid_row(w, min(row + 8, w.rows - 1));
        }
      }
    }
  };
  /// Of a chunk: [tile][row g or g + 8][half of the columns].
  using GridScales = float[kTiles][2][2];
  static __device__ __forceinline__ void load_grid(const Rows& rows, int chunk, int units, GridScales& scales) {
#pragma unroll
    for (int i = 0; i < 4 * kTiles; ++i) {
      const int at = chunk * 2 + i % 2;
      scales[i / 4][i / 2 % 2][i % 2] = at * (kGridCols / kUnitCols) < units ? rows.grid[i / 4][i / 2 % 2][at] : 0.0F;
    }
  }

  static __device__ __forceinline__ void multiply_unit(const Chunk (&chunk)[kTiles], int unit, const Rows& rows,
                                                       const InputUnit& b, Sums& sums) {
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
      FragmentA a[4];
      chunk[tile].decode(unit, rows.bias[tile], a);
#pragma unroll
      for (int i = 0; i < 4 * kGroups; ++i) {
        const uint4& words = b[i % kGroups][i / kGroups / 2];
        const bool is_first = i / kGroups % 2 == 0;
        const FragmentB fragment = is_first ? FragmentB{{words.x, words.y}} : FragmentB{{words.z, words.w}};
        multiply_add(sums[tile][i % kGroups], a[i / kGroups], fragment);
      }
    }
  }
  /// Sums of one half of a chunk's columns, times their scales of the grid.
  static __device__ __forceinline__ void add_scaled(const GridScales& scales, int half, Sums& part, Sums& sums) {
#pragma unroll
    for (int i = 0; i < kTiles * kGroups * 4; ++i) {
      float& from = part[i / 4 / kGroups][i / 4 % kGroups][i % 4];
      float& to = sums[i / 4 / kGroups][i / 4 % kGroups][i % 4];
      to = __fmaf_rn(scales[i / 4 / kGroups][i % 4 / 2][half], from, to);
      from = 0.0F;
    }
  }

  /// Something of every number read of a stage. Only when reads have come back, not when they were issued, may copies
  /// overwrite what they read: those behind them in time overtake reads that the first-level cache holds up.
  static __device__ __forceinline__ std::uint32_t read_all(const Chunk (&codes)[kTiles],
                                                           const InputUnit (&b)[kChunkUnits]) {
    std::uint32_t all = 0;
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) all |= codes[tile].read_all();
    if constexpr (!kIsOwn) {
#pragma unroll
      for (int i = 0; i < kChunkUnits * kGroups * 2; ++i) all |= b[i / 2 / kGroups][i / 2 % kGroups][i % 2].x;
    }
    return all;
  }

  /// A warp's share of a job.
  static __device__ void multiply(const Rows& rows, Feed& feed, const Ring& ring, const Columns& columns, Sums& sums,
                                  unsigned& turn) {
    for (int chunk = feed.range.begin; chunk < feed.range.end; ++chunk) {
      const int slot = static_cast<int>(turn % kStages);
      const std::uint32_t from = ring.stage(slot);
      GridScales scales;
      if constexpr (kHasGrid) load_grid(rows, chunk, feed.units, scales);
      wait_for_phase(ring.barrier(slot), turn / kStages % 2);
      ++turn;
      Chunk codes[kTiles];
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) {
        codes[tile].load(from + tile * kCodeBytes, from + kTiles * kCodeBytes + tile * kScaleBytes);
      }
      InputUnit b[kChunkUnits];
      const auto load_input = [&](int unit) __attribute__((always_inline)) {
        load_unit(columns, (kIsOwn ? chunk * kChunkCols * 2 : from) + unit * (kUnitCols * 2), b[unit]);
      };
      if constexpr (kTakesFirst) {
        if constexpr (!kIsOwn) {
#pragma unroll
          for (int unit = 0; unit < kChunkUnits; ++unit) load_input(unit);
        }
        // Addresses in shared memory are below 2^31, but the compiler doesn't know.
        refill(feed, ring, slot, read_all(codes, b) & ring.barriers >> 31);
      }
      const int count = feed.units - chunk * kChunkUnits;
      Sums part = {};
      const auto multiply_one = [&](int unit) __attribute__((always_inline)) {
        if constexpr (kIsOwn || !kTakesFirst) load_input(unit);
        multiply_unit(codes, unit, rows, b[unit], kHasGrid ? part : sums);
        if (kHasGrid && unit % 2 == 1) add_scaled(scales, unit / 2, part, sums);
      };
      if (count >= kChunkUnits) {
#pragma unroll
        for (int unit = 0; unit < kChunkUnits; ++unit) multiply_one(unit);
      } else {
#pragma unroll
        for (int unit = 0; unit < kChunkUnits - 1; ++unit) {
          if (unit < count) multiply_one(unit);
          if (kHasGrid && unit % 2 == 0 && unit + 1 == count) add_scaled(scales, unit / 2, part, sums);
        }
      }
      if constexpr (!kTakesFirst) refill(feed, ring, slot, 0);
    }
  }
  /// Asks for the next stage in the place of one that has been read. `read` is 0, known when all reads have come back.
  static __device__ __forceinline__ void refill(Feed& feed, const Ring& ring, int slot, std::uint32_t read) {
    if (feed.ended()) return;
    __syncwarp();
    if (is_elected()) feed.ask(ring, slot, ring.barrier(slot) | read, true);
    feed.step();
  }

  static constexpr int kStoredTiles = kGated ? 1 : kTiles;
  /// As in narrow_product.cuh: of each job only as many warps as are needed wait for all partial sums, by turns.
  static constexpr int kFull = 1;
  static constexpr int kEmpty = 3;

  /// One of `storers` warps.
  static __device__ void store(const NarrowRun<LinearJobs>& run, int number, int storers, const RingOutput& output,
                               const Partials& partials) {
    constexpr int kRows = kStoredTiles * kTileRows;
    const int terms = run.jobs.x().terms;
    for (int i = number * 32 + static_cast<int>(threadIdx.x) % 32; i < run.tokens.count * kRows; i += storers * 32) {
      const int tile = i / kTileRows % kStoredTiles;
      const int token = i / kRows;
      const int row = (run.job.tile * kRowTiles + tile) * kTileRows + i % kTileRows;
      if (row >= matrix(run.jobs, run.job, tile).weight.rows) continue;
      const auto result_of = [&](int which, const float* add_to) {
        const auto column = [&](int term) {
          return Narrow::add_partials(partials, 0, kSegments, which, i % kTileRows, token * terms + term);
        };
        const float sum = terms == 1 ? column(0) : add_terms(column(0), column(1), column(2));
        const MatrixRef& from = matrix(run.jobs, run.job, which);
        return finish_product(from, row, sum * from.weight.rescale, add_to);
      };
      if constexpr (kGated) {
        const GatedOutput& to = output.gated;
        std::uint16_t* const at = to.hidden + token * terms * to.stride + row / kChunkCols * output.chunk_stride;
        store_terms(at + row % kChunkCols, to.stride, terms,
                    gated(to.spec, result_of(0, nullptr), result_of(1, nullptr)));
      } else {
        float* const y = run.jobs.y(run.job, token) + row;
        *y = result_of(tile, run.jobs.accumulate(run.job) ? y : nullptr);
      }
    }
  }

  /// All threads of a block.
  static __device__ void run(const LinearJobs& jobs, const RingOutput& output, unsigned char* memory) {
    const NarrowPlan& plan = jobs.plan;
    const Memory at(plan);
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int warp = static_cast<int>(threadIdx.x) / 32;
    const auto shared = static_cast<std::uint32_t>(__cvta_generic_to_shared(memory));
    const Ring ring = {shared + warp * kStages * at.stage, shared + at.barriers + warp * kStages * 8, at.stage};
    const int units = jobs.batch.matrix[0].weight.units;
    Feed feed(jobs, find_range(units), units);
    if (lane == 0) {
      for (int slot = 0; slot < kStages; ++slot) init_barrier(ring.barrier(slot), 1);
      asm volatile("fence.mbarrier_init.release.cluster;\n" ::: "memory");
    }
    __syncwarp();
    int asked = 0;
    for (; asked < kStages && !feed.ended(); ++asked) {
      if (is_elected()) feed.ask(ring, asked, ring.barrier(asked), false);
      feed.step();
    }
    wait_for_predecessor();
    if constexpr (kIsOwn) {
      take_input(jobs, feed.range, reinterpret_cast<std::uint16_t*>(memory + at.input));
    } else if (is_elected()) {
      const int length = feed.range.end - feed.range.begin;
      for (int slot = 0; slot < asked; ++slot) {
        feed.ask_input(ring, slot, ring.barrier(slot), feed.range.begin + slot % length);
      }
    }
    Columns columns;
    find_columns(plan, shared + at.input, columns);
    const int storers = min((plan.tokens * kStoredTiles * kTileRows + 31) / 32, kWarps);
    unsigned stage = 0;
    int turn = 0;
    for (int number = static_cast<int>(blockIdx.x); number < jobs.count(); number += static_cast<int>(gridDim.x)) {
      const int set = turn % 2;
      const Partials partials = {reinterpret_cast<float*>(memory + at.sums) + set * Narrow::set_size(plan.columns),
                                 plan.columns};
      {
        Sums sums = {};
        multiply(Rows(jobs, jobs.job(number)), feed, ring, columns, sums, stage);
        if (turn >= 2) wait_at<kEmpty>(set, kThreads + 32 * storers);
        Narrow::leave_partials(sums, partials);
      }
      if (const int storer = (warp + turn) % kWarps; storer < storers) {
        wait_at<kFull>(set, kThreads);
        store({jobs, jobs.job(number), {0, plan.tokens}}, storer, storers, output, partials);
        pass_by<kEmpty>(set, kThreads + 32 * storers);
      } else {
        pass_by<kFull>(set, kThreads);
      }
      ++turn;
    }
  }

#endif
};

}  // namespace vernier::cuda
