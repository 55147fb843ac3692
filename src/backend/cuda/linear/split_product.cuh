// Products with some tens of tokens on Hopper, where a row tile for each multiprocessor there isn't and decoding
// weights is the work. A block of 640 threads takes 256 rows, 32 or 64 tokens and, as the other blocks of its cluster,
// a part of the columns: whole segments (segments.h). A thread of each of four warps asks for packed weights and input
// by bulk copies into a ring in shared memory, weights before the input is there; four groups of four warps decode and
// multiply 64 rows each, by turns, as they come.
//
// The first block adds up its segments; of the others each segment's sums go to memory, and when all are there, each
// block adds a part of them up in the order of segments. So results are those of the other kernels, to the bit.
#pragma once

#include "backend/cuda/linear/async_store.cuh"
#include "backend/cuda/linear/split_kernels.h"
#include "backend/cuda/predecessor.cuh"

namespace vernier::cuda {

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

template <Packing kPacking, int kBlocks>
struct SplitProduct {
  using Base = AsyncProduct<kPacking>;
  static constexpr int kTiles = kSplitRows / kTileRows;
  static constexpr int kUnits = code_bits(kPacking) == 16 ? 1 : 2;  ///< of a stage
  static constexpr int kCodeBytes = kTiles * kUnits * unit_bytes(kPacking);
  static constexpr int kUnitInput = kBlocks * kTileBytes;
  static constexpr int kDepth = kSplitRingBytes / (kCodeBytes + kUnits * kUnitInput);
  static constexpr int kSums = 16 * kBlocks;
  static constexpr int kMultipliers = 128 * kSplitGroups;
  using Sums = float[kSums];
  using Place = RingPlace<kDepth>;

  /// The ring.
  struct Shared {
    alignas(1024) std::byte input[kDepth][kUnits * kUnitInput];
    alignas(1024) std::byte codes[kDepth][kCodeBytes];
    alignas(8) std::uint64_t full[kDepth];
    alignas(8) std::uint64_t empty[kDepth];
  };

  /// What a block has to do.
  struct Job {
    AsyncJob of_group;
    int number;  ///< of the tile
    int rank;    ///< in the cluster
    int segment;
    int end_segment;
    int unit;
    int end_unit;
  };

  static __device__ Job find_job(const SplitSource& source) {
    const int group = static_cast<int>(threadIdx.x) / 128;
    Job job;
    job.rank = source.split == 1 ? 0 : static_cast<int>(cluster_rank());
    job.number = static_cast<int>(blockIdx.x) / source.split;
    const int row_tile = job.number / source.token_tiles;
    const int token_tile = job.number - row_tile * source.token_tiles;
    AsyncJob& part = job.of_group;
    part.product = linear_job(source.linear, {kSplitRows, kBlocks * kBlockTokens}, row_tile, token_tile);
    part.matrix = part.product.matrix;
    part.tile = part.product.tile * kTiles;
    part.row = part.product.tile * kSplitRows + group * 64;
    part.block = token_tile * kBlocks;
    part.blocks = kBlocks;
    part.stores = true;
    const int segments = kSegments / source.split;
    job.segment = job.rank * segments;
    job.end_segment = job.segment + segments;
    job.unit = segment_begin(part.matrix->weight.units, job.segment);
    job.end_unit = segment_begin(part.matrix->weight.units, job.end_segment);
    return job;
  }

  static __device__ void init(Shared& shared) {
    if (threadIdx.x == 0) {
      for (int i = 0; i < kDepth; ++i) {
        init_barrier(shared_address(&shared.full[i]), 1);
        init_barrier(shared_address(&shared.empty[i]), kMultipliers / 32);
      }
      asm volatile("fence.mbarrier_init.release.cluster;\n" ::: "memory");
    }
    __syncthreads();
  }

  /// The thread that asks in one of four warps: for four row tiles of sixteen and every fourth tile of input.
  struct Asker {
    const std::byte* codes[kTiles / 4];
    const std::byte* input[kBlocks];
    int own;

    __device__ Asker(const Job& job, const SplitSource& source) : own(static_cast<int>(threadIdx.x) / 32 % 4) {
      const WeightRef& w = job.of_group.matrix->weight;
      const int last = (w.rows - 1) / kTileRows;
#pragma unroll
      for (int i = 0; i < kTiles / 4; ++i) {
        const int tile = min(job.of_group.tile + own * (kTiles / 4) + i, last);
        codes[i] = w.codes + (std::int64_t{tile} * w.units + job.unit) * unit_bytes(kPacking);
      }
#pragma unroll
      for (int i = 0; i < kBlocks; ++i) {  // beyond the last: the last again
        input[i] = source.x.tile(min(job.of_group.block + i, source.x_blocks - 1), job.unit);
      }
    }
    __device__ __forceinline__ void ask_codes(int units, int stage, Shared& shared) {
      const std::uint32_t full = shared_address(&shared.full[stage]);
      const std::uint32_t bytes = units * unit_bytes(kPacking);
      if (own == 3) arrive_expecting(full, kTiles * bytes + units * kUnitInput);
      std::uint32_t to = shared_address(shared.codes[stage]) + own * (kCodeBytes / 4);
#pragma unroll
      for (int i = 0; i < kTiles / 4; ++i) {
        bulk_copy(to, codes[i], bytes, full);
        codes[i] += bytes;
        to += kCodeBytes / kTiles;
      }
    }
    __device__ __forceinline__ void ask_input(int units, int stage, Shared& shared) {
      const std::uint32_t full = shared_address(&shared.full[stage]);
      const std::uint32_t to = shared_address(shared.input[stage]);
#pragma unroll
      for (int i = 0; i < kUnits * kBlocks; ++i) {
        const int unit = i / kBlocks;
        if (i % 4 == own && unit < units) {
          bulk_copy(to + i * kTileBytes, input[i % kBlocks] + unit * kTileBytes, kTileBytes, full);
        }
      }
#pragma unroll
      for (const std::byte*& block : input) block += units * kTileBytes;
    }
  };

  static __device__ void produce(const Job& job, const SplitSource& source, Shared& shared) {
    Asker codes(job, source);
    int unit = job.unit;
    int stage = 0;
    for (; stage < kDepth && unit < job.end_unit; ++stage, unit += kUnits) {
      codes.ask_codes(min(kUnits, job.end_unit - unit), stage, shared);
    }
    wait_for_predecessor();
    unit = job.unit;
    stage = 0;
    for (; stage < kDepth && unit < job.end_unit; ++stage, unit += kUnits) {
      codes.ask_input(min(kUnits, job.end_unit - unit), stage, shared);
    }
    Place at;
#pragma unroll 1
    for (; unit < job.end_unit; unit += kUnits) {
      const int units = min(kUnits, job.end_unit - unit);
      wait_for_phase(shared_address(&shared.empty[at.stage]), at.parity);
      codes.ask_codes(units, at.stage, shared);
      codes.ask_input(units, at.stage, shared);
      at.advance();
    }
  }

  /// A warp has done with a stage.
  static __device__ __forceinline__ void release(int stage, Shared& shared) {
    if (threadIdx.x % 32 != 0) return;
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];\n" ::"r"(shared_address(&shared.empty[stage])) : "memory");
  }

  /// A group's walk through a job.
  struct Walk {
    Shared& shared;
    const std::byte* codes;  ///< the lane's in the ring's first stage
    std::uint64_t input;     ///< descriptor of the ring's first stage
    typename Base::Weights weights;
    uint2 scales;  ///< of the chunk
    int end;       ///< unit
    Place at;

    __device__ Walk(const Job& job, Shared& ring) : shared(ring), end(job.end_unit) {
      const int warp = static_cast<int>(threadIdx.x) / 32;
      codes = ring.codes[0] + warp * (kCodeBytes / kTiles) + static_cast<int>(threadIdx.x) % 32 * 16;
      input = describe_b(shared_address(ring.input[0]));
      weights.begin(job.of_group, job.of_group.row + warp % 4 * kTileRows);
      weights.load_next(job.unit);
    }
    __device__ __forceinline__ void next_chunk(int unit) {
      scales = weights.next;
      if (unit + kChunkUnits < end) weights.load_next(unit + kChunkUnits);
    }
    /// The codes of a unit, part i of its stage, when they are there.
    __device__ __forceinline__ typename Base::Codes load(int unit, int i) const {
      if (i == 0 && unit < end) wait_for_phase(shared_address(&shared.full[at.stage]), at.parity);
      return Base::Codes::load(codes + at.stage * kCodeBytes + i * unit_bytes(kPacking));
    }
  };

  /// Multiplies a unit, part i of its stage, whose codes are at hand, and loads the next one's meanwhile.
  static __device__ __forceinline__ void multiply_unit(Walk& walk, int unit, int i, int keep,
                                                       typename Base::Codes& codes, Sums& sums) {
    FragmentA fragment[4];
    codes.decode(Base::scales_of(walk.scales, unit % kChunkUnits), walk.weights.bias, fragment);
    Base::pin_fragments(fragment);
    const std::uint64_t b = walk.input + static_cast<std::uint64_t>((walk.at.stage * kUnits + i) * (kUnitInput / 16));
    begin_async();
    multiply_add_async(sums, fragment[0], b, keep);
#pragma unroll
    for (int step = 1; step < 4; ++step) {
      multiply_add_async(sums, fragment[step], b + static_cast<std::uint64_t>(step * kDescriptorStep), 1);
    }
    commit_async();
    const int stage = walk.at.stage;
    const bool ends = i + 1 == kUnits || unit + 1 == walk.end;
    if (ends) walk.at.advance();
    codes = walk.load(unit + 1, ends ? 0 : i + 1);
    wait_async<0>();
    pin_sums(sums);
    if (ends) release(stage, walk.shared);
  }

  /// Sums of units [begin, end).
  static __device__ __forceinline__ void multiply_segment(Walk& walk, int begin, int end, typename Base::Codes& codes,
                                                          Sums& sums) {
    pin_sums(sums);
    int unit = begin;
#pragma unroll 1
    for (; unit + kChunkUnits <= end; unit += kChunkUnits) {
      walk.next_chunk(unit);
#pragma unroll
      for (int i = 0; i < kChunkUnits; ++i) {
        multiply_unit(walk, unit + i, i % kUnits, i > 0 || unit != begin, codes, sums);
      }
    }
    if (unit < end) walk.next_chunk(unit);
#pragma unroll 1
    for (; unit < end; ++unit) multiply_unit(walk, unit, unit % kUnits, unit != begin, codes, sums);
  }

  /// The same with scales of a grid: sums of 128 columns are scaled and added.
  static __device__ __forceinline__ void multiply_grid_segment(Walk& walk, int begin, int end,
                                                               typename Base::Codes& codes, Sums& sums) {
    float low = walk.weights.grid[0][begin * kUnitCols / kGridCols];
    float high = walk.weights.grid[1][begin * kUnitCols / kGridCols];
#pragma unroll 1
    for (int unit = begin; unit < end; unit += 2) {
      const int next = min(unit + 2, end - 1) * kUnitCols / kGridCols;
      const float next_low = walk.weights.grid[0][next];
      const float next_high = walk.weights.grid[1][next];
      Sums part;
      multiply_unit(walk, unit, 0, 0, codes, part);
      if (unit + 1 < end) multiply_unit(walk, unit + 1, 1, 1, codes, part);
#pragma unroll
      for (int i = 0; i < kSums; ++i) sums[i] = __fmaf_rn(i % 4 < 2 ? low : high, part[i], sums[i]);
      low = next_low;
      high = next_high;
    }
  }

  /// Where a thread's sums of a segment go, kMultipliers apart.
  static __device__ __forceinline__ float* partials_of(const SplitSource& source, const Job& job, int segment) {
    return source.partials + (std::int64_t{job.number} * kSegments + segment) * (kSums * kMultipliers) + threadIdx.x;
  }
  static __device__ __forceinline__ void leave_partials(float* to, const Sums& sums) {
#pragma unroll
    for (int i = 0; i < kSums; ++i) __stcg(to + i * kMultipliers, sums[i]);
  }

  /// A group's work before the blocks meet. Rank 0 adds its segments up, and leaves them as if they were the first.
  static __device__ __forceinline__ void multiply(const SplitSource& source, const Job& job, Shared& shared,
                                                  Sums& totals) {
    Walk walk(job, shared);
    wait_for_predecessor();
    typename Base::Codes codes = walk.load(job.unit, 0);
#pragma unroll
    for (float& total : totals) total = -0.0F;  // adds nothing, not even a sign
#pragma unroll 1
    for (int segment = job.segment; segment < job.end_segment; ++segment) {
      const int begin = segment_begin(job.of_group.matrix->weight.units, segment);
      const int end = segment_begin(job.of_group.matrix->weight.units, segment + 1);
      Sums sums = {};
      if (begin == end) {
#pragma unroll
        for (float& sum : sums) sum = -0.0F;
      } else if constexpr (Base::kHasGrid) {
        multiply_grid_segment(walk, begin, end, codes, sums);
      } else {
        multiply_segment(walk, begin, end, codes, sums);
      }
      if (job.rank > 0) {
        leave_partials(partials_of(source, job, segment), sums);
      } else {
#pragma unroll
        for (int i = 0; i < kSums; ++i) totals[i] = __fadd_rn(totals[i], sums[i]);
      }
    }
    if (source.split > 1 && job.rank == 0) leave_partials(partials_of(source, job, 0), totals);
  }

  /// What a thread's two rows go through. Found before the blocks meet: then nothing waits for it.
  struct Finish {
    int row;
    RowFinish of[2];

    explicit __device__ Finish(const AsyncJob& job)
        : row(job.row + static_cast<int>(threadIdx.x) % 128 / 32 * kTileRows + static_cast<int>(threadIdx.x) % 32 / 4),
          of{RowFinish::of(*job.matrix, row), RowFinish::of(*job.matrix, row + 8)} {}
    [[nodiscard]] __device__ __forceinline__ float operator()(bool is_high, float sum) const {
      const float factor = is_high ? of[1].factor : of[0].factor;
      const float value = sum * of[0].rescale;
      const float scaled = of[0].divides ? __fdiv_rn(value, factor) : __fmul_rn(value, factor);
      return of[0].has_bias ? __fadd_rn(scaled, is_high ? of[1].bias : of[0].bias) : scaled;
    }
  };

  /// This block's part of the sums of a tile that kSplit blocks share.
  template <int kSplit>
  static __device__ __forceinline__ void store_part(const SplitSource& source, const Job& job, const Finish& finish) {
    constexpr int kCount = kSums / kSplit;
    const int first = job.rank * kCount;
    const float* from = partials_of(source, job, 0) + first * kMultipliers;
    float sums[kCount];
#pragma unroll
    for (int i = 0; i < kCount; ++i) sums[i] = __ldcg(from + i * kMultipliers);
#pragma unroll
    for (int segment = kSegments / kSplit; segment < kSegments; ++segment) {
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        sums[i] = __fadd_rn(sums[i], __ldcg(from + (segment * kSums + i) * kMultipliers));
      }
    }
    const ProductJob& product = job.of_group.product;
    int y_row[kCount];  // -1: none
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const int at = first + i;
      const int token = product.first_token + at / 4 * 8 + static_cast<int>(threadIdx.x) % 4 * 2 + at % 2;
      const int row = finish.row + at % 4 / 2 * 8;
      const bool is_there = row < job.of_group.matrix->weight.rows && token < product.end_token;
      y_row[i] = is_there ? static_cast<int>(product.y_row(token)) : -1;
      sums[i] = finish(at % 4 >= 2, sums[i]);
    }
    float* const y = product.y + finish.row;
    const auto place = [&](int i) { return y + y_row[i] * product.y_stride + (first + i) % 4 / 2 * 8; };
    if (product.accumulate) {
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        if (y_row[i] >= 0) sums[i] = __fadd_rn(*place(i), sums[i]);
      }
    }
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      if (y_row[i] >= 0) *place(i) = sums[i];
    }
  }

  static __device__ __forceinline__ void store_all(const Job& job, Sums& totals) {
    const int row = job.of_group.row + static_cast<int>(threadIdx.x) % 128 / 32 * kTileRows +
                    static_cast<int>(threadIdx.x) % 32 / 4;
    float values[kSums];
    finish_sums<kBlocks>(job.of_group, row, totals, values);
    if (is_whole(job.of_group, row, kBlocks * kBlockTokens)) {
      store_whole_rows(job.of_group, row, values);
    } else {
      store_rows(job.of_group, row, values);
    }
  }

  static __device__ void run(const SplitSource& source, Shared& shared) {
    init(shared);
    release_successor();
    const Job job = find_job(source);
    if (threadIdx.x >= kMultipliers) {
      give_registers<32>();
      if (threadIdx.x % 32 == 0) produce(job, source, shared);
      __syncwarp();
      if (source.split > 1) sync_cluster();
      return;
    }
    take_registers<112>();
    Sums totals;
    multiply(source, job, shared, totals);
    if (source.split == 1) return store_all(job, totals);
    const Finish finish(job.of_group);
    sync_cluster();  // partial sums are there
    if (source.split == 2) {
      store_part<2>(source, job, finish);
    } else if (source.split == 4) {
      store_part<4>(source, job, finish);
    } else {
      store_part<8>(source, job, finish);
    }
  }
};

#endif

}  // namespace vernier::cuda
