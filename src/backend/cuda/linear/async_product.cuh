// Products with many tokens on Hopper. A block of 384 threads takes 128 rows and up to 128 columns (tokens, or each of
// their bf16 terms one): a thread of each of four warps (which leave their registers to the others) asks for packed
// weights and input by bulk copies into a ring in shared memory, two groups of four warps multiply 64 rows each. They
// decode weights from the ring into registers, the next unit's while the tensor cores are at the last one's. The two
// blocks of a cluster take neighbouring rows of the same columns: each fetches half of the input for both.
//
// Sums are kept as the other kernels keep them: a segment of columns at a time (segments.h), then the segments in their
// order. So a row's result is the same to the bit as theirs.
#pragma once

#include <cstdint>

#include "backend/cuda/fragment/stage.cuh"
#include "backend/cuda/fragment/wgmma.cuh"
#include "backend/cuda/linear/product_job.cuh"
#include "backend/cuda/linear/segments.h"
#include "backend/cuda/linear/tiled_input.h"

namespace vernier::cuda {

/// What a group of four warps multiplies.
struct AsyncJob {
  ProductJob product;         ///< its first_token and end_token are those of the columns
  const MatrixRef* matrix{};  ///< the group's
  int row = 0;                ///< the group's first
  int tile = 0;               ///< the block's first row tile of 16 of each group's matrix
  int block = 0;              ///< first block of the input
  int blocks = 0;             ///< 1 .. 4
  bool stores = false;
};

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

/// Memory in which gate meets up, and in which the result is put together.
struct GateExchange {
  float values[2][16][128];  ///< gate, up: sixteen of each thread's values at a time
  std::byte tiles[4 * kTileBytes];
};

/// The ring and what the groups exchange.
template <Packing kPacking>
struct AsyncShared {
  static constexpr int kCodeBytes = 8 * unit_bytes(kPacking);
  static constexpr int kInputBytes = 4 * kTileBytes;
  static constexpr int kDepth = 192 * 1024 / (kCodeBytes + kInputBytes);
  alignas(1024) std::byte input[kDepth][kInputBytes];
  alignas(1024) std::byte codes[kDepth][kCodeBytes];
  alignas(128) GateExchange exchange;
  alignas(8) std::uint64_t full[kDepth];
  alignas(8) std::uint64_t empty[kDepth];
};

/// A stage of the ring, and how often it came round.
template <int kDepth>
struct RingPlace {
  int stage = 0;
  unsigned parity = 0;
  __device__ __forceinline__ void advance() {
    if (++stage == kDepth) {
      stage = 0;
      parity ^= 1;
    }
  }
};

__device__ __forceinline__ std::uint32_t shared_address(const void* at) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(at));
}

template <Packing kPacking>
struct AsyncProduct {
  using Shared = AsyncShared<kPacking>;
  using Place = RingPlace<Shared::kDepth>;
  static constexpr bool kHasGrid = kPacking == Packing::kE4M3ByGrid;
  static constexpr bool kIsCoded = code_bits(kPacking) == 4;
  static constexpr unsigned kArrivals = 2 * 8;  ///< of a stage that is free again: the warps of the cluster

  static __device__ void init(Shared& shared) {
    if (threadIdx.x == 0) {
      for (int i = 0; i < Shared::kDepth; ++i) {
        init_barrier(shared_address(&shared.full[i]), 1);
        init_barrier(shared_address(&shared.empty[i]), kArrivals);
      }
      asm volatile("fence.mbarrier_init.release.cluster;\n" ::: "memory");
    }
    sync_cluster();
  }

  /// Codes of four row tiles, from `codes` on; those beyond the matrix repeat its last.
  struct CodeSource {
    const std::byte* codes;
    std::int64_t stride;  ///< from one tile to the next
    int last;

    static __device__ CodeSource of(const WeightRef& w, int tile) {
      const int at = min(tile, (w.rows - 1) / kTileRows);
      const std::int64_t stride = std::int64_t{w.units} * unit_bytes(kPacking);
      return {w.codes + at * stride, stride, (w.rows - 1) / kTileRows - at};
    }
    __device__ __forceinline__ void copy(std::uint32_t to, std::uint32_t barrier) const {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        bulk_copy(to + i * unit_bytes(kPacking), codes + min(i, last) * stride, unit_bytes(kPacking), barrier);
      }
    }
  };

  /// One thread of each of four warps: asks for every fourth unit of a job. A copy takes a thread long to ask for.
  static __device__ void produce(const AsyncJob& job, const MatrixRef& second, const TiledInput& x, Place& at,
                                 Shared& shared) {
    const int own = static_cast<int>(threadIdx.x) / 32 % 4;
    const int rank = static_cast<int>(cluster_rank());
    const int units = job.matrix->weight.units;
    const bool is_gated = job.matrix != &second;
    CodeSource low = CodeSource::of(job.matrix->weight, job.tile);
    CodeSource high = CodeSource::of(second.weight, is_gated ? job.tile : job.tile + 4);
    const std::byte* input = x.tile(job.block + rank, 0);
    const std::int64_t next_input = std::int64_t{2 * kTileBytes} * x.units;
    const std::uint32_t bytes = static_cast<std::uint32_t>(Shared::kCodeBytes + job.blocks * kTileBytes);
#pragma unroll 1
    for (int unit = 0; unit < units; ++unit) {
      if (unit % 4 == own) {
        const std::uint32_t full = shared_address(&shared.full[at.stage]);
        wait_for_phase(shared_address(&shared.empty[at.stage]), at.parity ^ 1);
        arrive_expecting(full, bytes);
        const std::uint32_t to = shared_address(shared.input[at.stage]) + static_cast<std::uint32_t>(rank * kTileBytes);
        if (rank < job.blocks) bulk_copy_to_all(to, input, kTileBytes, full, 3);
        if (rank + 2 < job.blocks) bulk_copy_to_all(to + 2 * kTileBytes, input + next_input, kTileBytes, full, 3);
        const std::uint32_t codes = shared_address(shared.codes[at.stage]);
        low.copy(codes, full);
        high.copy(codes + Shared::kCodeBytes / 2, full);
      }
      input += kTileBytes;
      low.codes += unit_bytes(kPacking);
      high.codes += unit_bytes(kPacking);
      at.advance();
    }
  }

  /// A warp's weights on their way through a job.
  struct Weights {
    TileCursor scales;
    const float* grid[2];
    uint2 next;  ///< packed scales of the next chunk
    std::uint32_t bias;
    int units;

    __device__ void begin(const AsyncJob& job, int row) {
      const WeightRef& w = job.matrix->weight;
      const int lane = static_cast<int>(threadIdx.x) % 32;
      const int tile = min(row / kTileRows, (w.rows - 1) / kTileRows);
      scales = tile_cursor<kPacking>(w, tile, lane);
      bias = w.scale_bias;
      units = w.units;
      if constexpr (kHasGrid) {
        grid[0] = grid_row(w, min(tile * kTileRows + lane / 4, w.rows - 1));
        grid[1] = grid_row(w, min(tile * kTileRows + lane / 4 + 8, w.rows - 1));
      }
      load_next(0);
    }
    __device__ __forceinline__ void load_next(int unit) {
      if constexpr (kIsCoded) {
        constexpr int kLanes = scale_cols(kPacking) / 16;  // that share scales
        if (unit < units) {
          next = load_stream_half(scales.scales + unit / kChunkUnits * chunk_scale_bytes(kPacking) +
                                  scales.lane / kLanes * 8);
        }
      }
    }
  };

  /// The fragments of a unit that has arrived; `scales`: those of its rows g and g + 8 in the low bytes.
  static __device__ __forceinline__ void decode(const std::byte* codes, std::uint32_t scales, std::uint32_t bias,
                                                FragmentA (&out)[4]) {
    const auto* from = reinterpret_cast<const uint4*>(codes);
    if constexpr (kIsCoded) {
      CodedStage<kPacking, 1> stage;
      stage.scales.x = scales;
      stage.codes[0] = from[0];
      stage.decode(0, bias, out);
    } else if constexpr (kPacking == Packing::kBF16) {
#pragma unroll
      for (int piece = 0; piece < 4; ++piece) {
        const uint4 words = from[piece * (kPieceBytes / 16)];
        out[piece] = {{words.x, words.y, words.z, words.w}};
      }
    } else {
      ByteStage<0, 1> stage;
      stage.codes[0][0] = from[0];
      stage.codes[0][1] = from[kPieceBytes / 16];
      stage.decode(0, bias, out);
    }
  }
  static __device__ __forceinline__ std::uint32_t scales_of(const uint2& chunk, int i) {
    return (i < 2 ? chunk.x : chunk.y) >> (i % 2 * 16);
  }

  /// A stage that this warp has done with is free for both blocks.
  static __device__ __forceinline__ void release(int stage, Shared& shared) {
    const unsigned lane = threadIdx.x % 32;
    if (lane < 2) arrive_at(shared_address(&shared.empty[stage]), lane);
  }

  /// A group's walk through a job.
  struct Walk {
    const std::byte* codes;  ///< the lane's in the ring's first stage
    std::uint64_t input;     ///< descriptor of the ring's first stage
    Weights weights;
    int held = -1;  ///< a stage that the tensor cores may still read
  };

  /// Begins with a unit: waits for it, decodes and leaves the rest to the tensor cores.
  template <int kSums>
  static __device__ __forceinline__ void start_unit(const Walk& walk, const Place& at, std::uint32_t scales, int keep,
                                                    Shared& shared, FragmentA (&fragment)[4], float (&sums)[kSums]) {
    wait_for_phase(shared_address(&shared.full[at.stage]), at.parity);
    decode(walk.codes + at.stage * Shared::kCodeBytes, scales, walk.weights.bias, fragment);
    const std::uint64_t b = walk.input + static_cast<std::uint64_t>(at.stage * (Shared::kInputBytes / 16));
    begin_async();
    multiply_add_async(sums, fragment[0], b, keep);
#pragma unroll
    for (int step = 1; step < 4; ++step) {
      multiply_add_async(sums, fragment[step], b + static_cast<std::uint64_t>(step * kDescriptorStep), 1);
    }
    commit_async();
  }

  /// Segment sums, whole chunks and what remains of the last. Leaves nothing with the tensor cores.
  template <int kSums>
  static __device__ __forceinline__ void multiply_segment(Walk& walk, int begin, int end, Place& at, Shared& shared,
                                                          float (&sums)[kSums]) {
    FragmentA fragment[2][4];
    int unit = begin;
    pin_sums(sums);
    for (; unit + kChunkUnits <= end; unit += kChunkUnits) {
      const uint2 scales = walk.weights.next;
      walk.weights.load_next(unit + kChunkUnits);
#pragma unroll
      for (int i = 0; i < kChunkUnits; ++i) {
        start_unit(walk, at, scales_of(scales, i), i > 0 || unit != begin, shared, fragment[i % 2], sums);
        wait_async<1>();
        if (walk.held >= 0) release(walk.held, shared);
        walk.held = at.stage;
        at.advance();
      }
    }
    wait_async<0>();
    pin_sums(sums);
    if (walk.held >= 0) release(walk.held, shared);
    walk.held = -1;
    for (int i = 0; unit < end; ++unit, ++i) {
      start_unit(walk, at, scales_of(walk.weights.next, i), unit != begin, shared, fragment[0], sums);
      wait_async<0>();
      pin_sums(sums);
      release(at.stage, shared);
      at.advance();
    }
  }

  /// The same with scales of a grid: sums of 128 columns are scaled and added.
  template <int kSums>
  static __device__ __forceinline__ void multiply_grid_segment(Walk& walk, int begin, int end, Place& at,
                                                               Shared& shared, float (&sums)[kSums]) {
    float part[kSums];
    FragmentA fragment[2][4];
#pragma unroll
    for (int i = 0; i < kSums; ++i) sums[i] = 0.0F;
    int unit = begin;
    for (; unit + 2 <= end; unit += 2) {
      const int first = at.stage;
      start_unit(walk, at, 0, 0, shared, fragment[0], part);
      at.advance();
      start_unit(walk, at, 0, 1, shared, fragment[1], part);
      const float low = walk.weights.grid[0][unit * kUnitCols / kGridCols];
      const float high = walk.weights.grid[1][unit * kUnitCols / kGridCols];
      wait_async<0>();
      pin_sums(part);
      release(first, shared);
      release(at.stage, shared);
      at.advance();
#pragma unroll
      for (int i = 0; i < kSums; ++i) sums[i] = __fmaf_rn(i % 4 < 2 ? low : high, part[i], sums[i]);
    }
    if (unit < end) {
      start_unit(walk, at, 0, 0, shared, fragment[0], part);
      wait_async<0>();
      pin_sums(part);
      release(at.stage, shared);
      at.advance();
      const float low = walk.weights.grid[0][unit * kUnitCols / kGridCols];
      const float high = walk.weights.grid[1][unit * kUnitCols / kGridCols];
#pragma unroll
      for (int i = 0; i < kSums; ++i) sums[i] = __fmaf_rn(i % 4 < 2 ? low : high, part[i], sums[i]);
    }
  }

  /// A group's sums of a whole job.
  template <int kBlocks>
  static __device__ __forceinline__ void multiply(const AsyncJob& job, Place& at, Shared& shared,
                                                  float (&totals)[16 * kBlocks]) {
    constexpr int kSums = 16 * kBlocks;
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int warp = static_cast<int>(threadIdx.x) / 32;
    Walk walk;
    walk.codes = shared.codes[0] + warp * unit_bytes(kPacking) + lane * 16;
    walk.input = describe_b(shared_address(shared.input[0]));
    walk.weights.begin(job, job.row + warp % 4 * kTileRows);
    const int units = walk.weights.units;
#pragma unroll
    for (int i = 0; i < kSums; ++i) totals[i] = -0.0F;  // adds nothing, not even a sign
    for (int segment = 0; segment < kSegments; ++segment) {
      const int begin = segment_begin(units, segment);
      const int end = segment_begin(units, segment + 1);
      if (begin == end) continue;
      float sums[kSums] = {};
      if constexpr (kHasGrid) {
        multiply_grid_segment(walk, begin, end, at, shared, sums);
      } else {
        multiply_segment(walk, begin, end, at, shared, sums);
      }
#pragma unroll
      for (int i = 0; i < kSums; ++i) totals[i] = __fadd_rn(totals[i], sums[i]);
    }
  }
};

#endif

}  // namespace vernier::cuda
