// Products with some tens of tokens on Hopper, where there isn't a row tile for each multiprocessor and decoding
// weights is the work. A block of 640 threads takes 256 rows, 32 or 64 tokens and, like others of the same tile, a part
// of the columns: whole segments (segments.h). A thread of each of four warps asks for packed weights (before the input
// is there) or for input by bulk copies into a ring in shared memory; four groups of four warps decode and multiply 64
// rows each, by turns, as they come.
//
// A tile's first block adds up its segments; of the others each segment's sums go to memory, and when all are there,
// each block adds a part of them up in the order of segments. So results are those of the other kernels, to the bit.
// Blocks of a tile wait for each other: all must find room on the device at once.
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
    int rank;    ///< among the blocks of the tile
    int segment;
    int end_segment;
    int unit;
    int end_unit;
  };

  static __device__ __forceinline__ Job find_job(const SplitSource& source, int split) {
    const int group = static_cast<int>(threadIdx.x) / 128;
    Job job;
    job.number = static_cast<int>(blockIdx.x) / split;
    job.rank = static_cast<int>(blockIdx.x) - job.number * split;
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
    const int segments = kSegments / split;
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

  /// The threads that ask: three for the weights of every third row tile, one for the input.
  static constexpr int kAskers = 3;
  static __device__ __forceinline__ void wait_for_room(const Place& at, Shared& shared) {
    wait_for_phase(shared_address(&shared.empty[at.stage]), at.parity ^ 1);
  }
  static __device__ void ask_weights(const Job& job, int own, Shared& shared) {
    const WeightRef& w = job.of_group.matrix->weight;
    const std::int64_t stride = std::int64_t{w.units} * unit_bytes(kPacking);
    const std::byte* from = w.codes + job.of_group.tile * stride + std::int64_t{job.unit} * unit_bytes(kPacking);
    const int last = (w.rows - 1) / kTileRows - job.of_group.tile;  // row tiles beyond it repeat it
    Place at;
#pragma unroll 1
    for (int unit = job.unit; unit < job.end_unit; unit += kUnits) {
      const std::uint32_t bytes = min(kUnits, job.end_unit - unit) * unit_bytes(kPacking);
      wait_for_room(at, shared);
      const std::uint32_t full = shared_address(&shared.full[at.stage]);
      const std::uint32_t to = shared_address(shared.codes[at.stage]);
#pragma unroll 1
      for (int i = own; i < kTiles; i += kAskers) {
        bulk_copy(to + i * (kCodeBytes / kTiles), from + min(i, last) * stride, bytes, full);
      }
      from += bytes;
      at.advance();
    }
  }
  static __device__ void ask_input(const Job& job, const SplitSource& source, Shared& shared) {
    wait_for_predecessor();
    const std::byte* from[kBlocks];
#pragma unroll
    for (int i = 0; i < kBlocks; ++i) {  // beyond the last: the last again
      from[i] = source.x.tile(min(job.of_group.block + i, source.x_blocks - 1), job.unit);
    }
    Place at;
#pragma unroll 1
    for (int unit = job.unit; unit < job.end_unit; unit += kUnits) {
      const int units = min(kUnits, job.end_unit - unit);
      wait_for_room(at, shared);
      const std::uint32_t full = shared_address(&shared.full[at.stage]);
      arrive_expecting(full, units * (kTiles * unit_bytes(kPacking) + kUnitInput));
      std::uint32_t to = shared_address(shared.input[at.stage]);
#pragma unroll 1
      for (int i = 0; i < units; ++i) {
#pragma unroll
        for (const std::byte*& block : from) {
          bulk_copy(to, block, kTileBytes, full);
          block += kTileBytes;
          to += kTileBytes;
        }
      }
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
      for (int i = 1; i < kAhead; ++i) prefetch_scales(job.unit + i * kChunkUnits);
    }
    /// Scales of a chunk into the second-level cache: one chunk ahead is too late to ask the memory for them.
    static constexpr int kAhead = 4;
    __device__ __forceinline__ void prefetch_scales(int unit) const {
      if constexpr (Base::kIsCoded) {
        if (unit >= end) return;
        constexpr int kLanes = scale_cols(kPacking) / 16;  // that share scales
        const std::byte* at =
            weights.scales.scales + unit / kChunkUnits * chunk_scale_bytes(kPacking) + weights.scales.lane / kLanes * 8;
        asm volatile("prefetch.global.L2 [%0];\n" ::"l"(at));
      }
    }
    __device__ __forceinline__ void next_chunk(int unit) {
      scales = weights.next;
      if (unit + kChunkUnits < end) weights.load_next(unit + kChunkUnits);
      prefetch_scales(unit + kAhead * kChunkUnits);
    }
    /// The codes of part i of a stage, when they are there.
    [[nodiscard]] __device__ __forceinline__ typename Base::Codes load(int i) const {
      if (i == 0) wait_for_phase(shared_address(&shared.full[at.stage]), at.parity);
      return Base::Codes::load(codes + at.stage * kCodeBytes + i * unit_bytes(kPacking));
    }
  };

  /// Multiplies unit i of a chunk, whose codes are at hand, and loads the next one's meanwhile.
  static __device__ __forceinline__ void multiply_unit(Walk& walk, int i, bool is_last, int keep,
                                                       typename Base::Codes& codes, Sums& sums) {
    FragmentA fragment[4];
    codes.decode(Base::scales_of(walk.scales, i), walk.weights.bias, fragment);
    Base::pin_fragments(fragment);
    const int part = i % kUnits;  // of the stage
    const std::uint64_t b =
        walk.input + static_cast<std::uint64_t>((walk.at.stage * kUnits + part) * (kUnitInput / 16));
    Base::start_products(b, fragment, keep, sums);
    const int stage = walk.at.stage;
    const bool ends = part + 1 == kUnits || is_last;
    if (ends) walk.at.advance();
    if (!is_last) codes = walk.load(ends ? 0 : part + 1);
    wait_async<0>();
    pin_sums(sums);
    if (ends) release(stage, walk.shared);
  }

  /// Sums of units [begin, end): whole chunks, and what remains of the row's last.
  static __device__ __forceinline__ void multiply_segment(Walk& walk, int begin, int end, typename Base::Codes& codes,
                                                          Sums& sums) {
    pin_sums(sums);
    int unit = begin;
#pragma unroll 1
    for (; unit + kChunkUnits <= end; unit += kChunkUnits) {
      walk.next_chunk(unit);
#pragma unroll
      for (int i = 0; i < kChunkUnits; ++i) {
        const bool is_last = i + 1 == kChunkUnits && unit + kChunkUnits == walk.end;
        multiply_unit(walk, i, is_last, i > 0 || unit != begin, codes, sums);
      }
    }
    if (unit == end) return;
    walk.next_chunk(unit);
#pragma unroll 1
    for (int i = 0; unit + i < end; ++i) {
      multiply_unit(walk, i, unit + i + 1 == walk.end, i > 0 || unit != begin, codes, sums);
    }
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
      multiply_unit(walk, 0, unit + 1 == walk.end, 0, codes, part);
      if (unit + 1 < end) multiply_unit(walk, 1, unit + 2 == walk.end, 1, codes, part);
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
    typename Base::Codes codes;
    if (job.unit < job.end_unit) codes = walk.load(0);
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

  /// All threads that multiply: until the sums of all blocks of the tile are in memory. Counts to 2 * split, and the
  /// last leaves zero.
  static __device__ __forceinline__ void meet(unsigned* arrivals, unsigned split) {
    sync_all_groups();
    if (threadIdx.x == 0) {
      asm volatile("red.release.gpu.global.add.u32 [%0], 1;\n" ::"l"(arrivals) : "memory");
      unsigned count = 0;
      do {
        asm volatile("ld.acquire.gpu.global.u32 %0, [%1];\n" : "=r"(count) : "l"(arrivals) : "memory");
      } while (count < split);
      if (atomicAdd(arrivals, 1U) == 2 * split - 1) *arrivals = 0;
    }
    sync_all_groups();
  }
  static __device__ __forceinline__ void sync_all_groups() {
    asm volatile("bar.sync 1, %0;\n" ::"n"(kMultipliers) : "memory");
  }

  static __device__ void run(const SplitSource& source, Shared& shared) {
    init(shared);
    release_successor();
    if (threadIdx.x >= kMultipliers) {
      give_registers<32>();
      if (threadIdx.x % 32 != 0) return;
      const Job job = find_job(source, source.split);
      const int own = static_cast<int>(threadIdx.x) / 32 % 4;
      if (own == kAskers) return ask_input(job, source, shared);
      return ask_weights(job, own, shared);
    }
    take_registers<112>();
    Sums totals;
    const Job job = find_job(source, source.split);
    multiply(source, job, shared, totals);
    if (source.split == 1) return store_all(job, totals);
    int split = source.split;
    asm volatile("" : "+r"(split));  // the job is found out once more: else it would take registers all the while
    const Job late = find_job(source, split);
    const Finish finish(late.of_group);
    meet(source.arrivals + late.number, static_cast<unsigned>(split));
    if (split == 2) {
      store_part<2>(source, late, finish);
    } else if (split == 4) {
      store_part<4>(source, late, finish);
    } else {
      store_part<8>(source, late, finish);
    }
  }
};

#endif

}  // namespace vernier::cuda
