// Products with many tokens on Hopper. A block of 384 threads takes 128 rows and up to 128 columns (tokens, or each of
// their bf16 terms one): four warps (which leave their registers to the others) ask for packed weights and input by
// bulk copies into a ring in shared memory, two groups of four warps multiply 64 rows each. They decode weights from
// the ring into registers, the next unit's while the tensor cores are at the last one's. The two blocks of a cluster
// take neighbouring rows of the same columns: each fetches half of the input for both. async_wide.cuh and
// async_grid.cuh multiply otherwise.
//
// Sums are kept as the other kernels keep them: a segment of columns at a time (segments.h), then the segments in their
// order. So a row's result is the same to the bit as theirs.
#pragma once

#include <cstdint>
#include <type_traits>

#include "backend/cuda/fragment/even_decode.cuh"
#include "backend/cuda/fragment/ring_chunk.cuh"
#include "backend/cuda/fragment/wgmma.cuh"
#include "backend/cuda/linear/async_kernels.h"
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
template <int kMost>
struct GateExchange {
  float values[2][16][128];  ///< gate, up: sixteen of each thread's values at a time
  std::byte tiles[kMost * kTileBytes];
};

/// The ring and what the groups exchange. Tiles have up to kMost blocks of 32 columns. In a stage each row tile's codes
/// of all units follow each other; the input lies unit by unit.
template <Packing kPacking, int kMost = 4>
struct AsyncShared {
  static constexpr bool kHasGrid = kPacking == Packing::kE4M3ByGrid;
  static constexpr int kUnits = kHasGrid ? kGridCols / kUnitCols : 1;  ///< of a stage
  static constexpr int kTileCodes = kUnits * unit_bytes(kPacking);     ///< of a row tile
  static constexpr int kCodeBytes = 8 * kTileCodes;
  static constexpr int kUnitInput = kMost * kTileBytes;
  static constexpr int kInputBytes = kUnits * kUnitInput;
  static constexpr bool kIsWide = kMost > 4;
  /// Rows of totals, one value of each of the 256 threads that multiply: where there is a grid, and for most of a wide
  /// tile's, they have no registers for them.
  static constexpr int kTotals = kHasGrid ? 64 : kIsWide ? 80 : 0;
  static constexpr int kDepth = ((kTotals > 0 ? 225 : 192) - kTotals) * 1024 / (kCodeBytes + kInputBytes);
  using Exchange = GateExchange<kMost>;
  alignas(1024) std::byte input[kDepth][kInputBytes];
  alignas(1024) std::byte codes[kDepth][kCodeBytes];
  struct Nothing {};
  alignas(128) std::conditional_t<(kTotals > 0), Nothing, Exchange> exchange;
  alignas(8) std::uint64_t full[kDepth];
  alignas(8) std::uint64_t empty[kDepth];
  alignas(128) float totals[kTotals > 0 ? kTotals : 1][kTotals > 0 ? 256 : 1];

  /// Where there are totals it takes their place.
  __device__ __forceinline__ Exchange& gates() {
    static_assert(kTotals == 0 || sizeof(Exchange) <= sizeof(totals));
    if constexpr (kTotals > 0) {
      return *reinterpret_cast<Exchange*>(totals);
    } else {
      return exchange;
    }
  }
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

/// Lets the compiler keep nothing of shared memory in registers.
__device__ __forceinline__ void forget_shared() { asm volatile("" ::: "memory"); }

template <Packing kPacking, int kMost = 4>
struct AsyncProduct {
  using Shared = AsyncShared<kPacking, kMost>;
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

  /// Four warps: each asks for two of a unit's eight row tiles, and two of them for half of the input that this block
  /// fetches. One lane takes long to ask for a copy, and has few registers. Row tiles beyond the matrix repeat its
  /// last.
  static __device__ void produce(const AsyncJob& job, const MatrixRef& second, const TiledInput& x, Place& at,
                                 Shared& shared) {
    constexpr int kUnits = Shared::kUnits;
    const int own = static_cast<int>(threadIdx.x) / 32 % 4;
    const int units = job.matrix->weight.units;
    const bool is_gated = job.matrix != &second;
    const WeightRef& w = own < 2 ? job.matrix->weight : second.weight;
    const int tile = job.tile + (own < 2 || is_gated ? own % 2 * 2 : own * 2);
    const int last = (w.rows - 1) / kTileRows;
    const std::int64_t stride = std::int64_t{units} * unit_bytes(kPacking);
    const std::byte* low = w.codes + min(tile, last) * stride;
    const std::byte* high = w.codes + min(tile + 1, last) * stride;
    const int block = static_cast<int>(cluster_rank()) + own * 2;  // of the input, where there is one
    const bool has_block = block < job.blocks;
    const std::byte* input = x.tile(job.block + (has_block ? block : 0), 0);
#pragma unroll 1
    for (int unit = 0; unit < units; unit += kUnits) {
      const int count = min(kUnits, units - unit);
      const std::uint32_t full = shared_address(&shared.full[at.stage]);
      wait_for_phase(shared_address(&shared.empty[at.stage]), at.parity ^ 1);
      if (is_elected()) {
        if (own == 3) arrive_expecting(full, count * (8 * unit_bytes(kPacking) + job.blocks * kTileBytes));
        if (has_block) {
          const std::uint32_t to = shared_address(shared.input[at.stage]) + block * kTileBytes;
#pragma unroll
          for (int i = 0; i < kUnits; ++i) {
            if (i < count) bulk_copy_to_all(to + i * Shared::kUnitInput, input + i * kTileBytes, kTileBytes, full, 3);
          }
        }
        const std::uint32_t to = shared_address(shared.codes[at.stage]) + own * 2 * Shared::kTileCodes;
        bulk_copy(to, low, count * unit_bytes(kPacking), full);
        bulk_copy(to + Shared::kTileCodes, high, count * unit_bytes(kPacking), full);
      }
      input += kUnits * kTileBytes;
      low += Shared::kTileCodes;
      high += Shared::kTileCodes;
      at.advance();
    }
  }

  /// A warp's weights on their way through a job.
  struct Weights {
    TileCursor scales;
    const float* grid[2];
    uint2 next = {};  ///< packed scales of the next chunk
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
    /// The same in a loop: a copy of what is loaded would wait for it.
    __device__ __forceinline__ void load_next_in_place(int unit) {
      constexpr int kLanes = kIsCoded ? scale_cols(kPacking) / 16 : 1;
      const std::byte* from =
          scales.scales + unit / kChunkUnits * chunk_scale_bytes(kPacking) + scales.lane / kLanes * 8;
      asm volatile(
          "{\n.reg .pred p;\nsetp.ne.b32 p, %3, 0;\n@p ld.global.nc.L1::no_allocate.v2.u32 {%0, %1}, [%2];\n}\n"
          : "+r"(next.x), "+r"(next.y)
          : "l"(from), "r"(static_cast<int>(unit < units)));
    }
  };

  /// A lane's codes of a unit that has arrived, those of 16 bits apart: they are fragments and have no other place.
  struct Codes {
    static constexpr int kPieces = kPacking == Packing::kBF16 ? 0 : pieces_per_unit(kPacking);
    const std::byte* at;
    uint4 piece[kPieces + 1];

    static __device__ __forceinline__ Codes load(const std::byte* from) {
      Codes codes;
      codes.at = from;
#pragma unroll
      for (int i = 0; i < kPieces; ++i) codes.piece[i] = *reinterpret_cast<const uint4*>(from + i * kPieceBytes);
      return codes;
    }

    /// `scales`: those of rows g and g + 8 in the low bytes.
    __device__ __forceinline__ void decode(std::uint32_t scales, std::uint32_t bias, FragmentA (&out)[4]) const {
      if constexpr (kIsCoded) {
        CodedStage<kPacking, 1> stage;
        stage.scales.x = scales;
        stage.codes[0] = piece[0];
        stage.decode(0, bias, out);
      } else if constexpr (kPacking == Packing::kBF16) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const uint4 words = *reinterpret_cast<const uint4*>(at + i * kPieceBytes);
          out[i] = {{words.x, words.y, words.z, words.w}};
        }
      } else {
        decode_evenly({piece[0], piece[1]}, out);
      }
    }
  };
  static __device__ __forceinline__ std::uint32_t scales_of(const uint2& chunk, int i) {
    return (i < 2 ? chunk.x : chunk.y) >> (i % 2 * 16);
  }

  /// Keeps the compiler from putting off what makes a fragment.
  static __device__ __forceinline__ void pin_fragments(FragmentA (&fragment)[4]) {
#pragma unroll
    for (FragmentA& a : fragment) {
      asm volatile("" : "+r"(a.word[0]), "+r"(a.word[1]), "+r"(a.word[2]), "+r"(a.word[3])::"memory");
    }
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
    uint2 scales;   ///< of the chunk whose units are being decoded
    int held = -1;  ///< a stage that the tensor cores may still read

    __device__ void begin(const AsyncJob& job, Shared& shared) {
      const int lane = static_cast<int>(threadIdx.x) % 32;
      const int warp = static_cast<int>(threadIdx.x) / 32;
      codes = shared.codes[0] + warp * unit_bytes(kPacking) + lane * 16;
      input = describe_b(shared_address(shared.input[0]));
      weights.begin(job, job.row + warp % 4 * kTileRows);
      next_chunk(0);
    }
    __device__ __forceinline__ void next_chunk(int unit) {
      scales = weights.next;
      weights.load_next(unit + kChunkUnits);
    }
  };

  /// Waits for a unit, if there is one.
  static __device__ __forceinline__ void wait_for_unit(const Walk& walk, int unit, const Place& at, Shared& shared) {
    if (unit < walk.weights.units) wait_for_phase(shared_address(&shared.full[at.stage]), at.parity);
  }

  static __device__ __forceinline__ Codes codes_of(const Walk& walk, int stage) {
    return Codes::load(walk.codes + stage * Shared::kCodeBytes);
  }

  /// The fragments of unit i of a chunk. They are there before anything that follows.
  static __device__ __forceinline__ void decode_unit_of(const Walk& walk, const Codes& codes, int i,
                                                        FragmentA (&out)[4]) {
    codes.decode(scales_of(walk.scales, i), walk.weights.bias, out);
    pin_fragments(out);
  }

  /// Leaves a decoded unit to the tensor cores.
  template <int kSums>
  static __device__ __forceinline__ void start_unit(const Walk& walk, int stage, const FragmentA (&fragment)[4],
                                                    int keep, float (&sums)[kSums]) {
    start_products(walk.input + static_cast<std::uint64_t>(stage * (Shared::kInputBytes / 16)), fragment, keep, sums);
  }
  /// Those of a unit whose input lies at `b`.
  template <int kSums>
  static __device__ __forceinline__ void start_products(std::uint64_t b, const FragmentA (&fragment)[4], int keep,
                                                        float (&sums)[kSums]) {
    begin_async();
    multiply_add_async(sums, fragment[0], b, keep);
#pragma unroll
    for (int step = 1; step < 4; ++step) {
      multiply_add_async(sums, fragment[step], b + static_cast<std::uint64_t>(step * kDescriptorStep), 1);
    }
    commit_async();
  }

  /// Sums of a segment, whose first unit is decoded in fragment[0]: whole chunks and what remains of the last. While
  /// the tensor cores are at a unit, the next is decoded, be it of the next segment. Leaves nothing with them.
  template <int kSums>
  static __device__ __forceinline__ void multiply_segment(Walk& walk, int begin, int end, Place& at, Shared& shared,
                                                          FragmentA (&fragment)[2][4], float (&sums)[kSums]) {
    int unit = begin;
    pin_sums(sums);
#pragma unroll 1
    for (; unit + kChunkUnits <= end; unit += kChunkUnits) {
#pragma unroll
      for (int i = 0; i < kChunkUnits; ++i) {
        start_unit(walk, at.stage, fragment[i % 2], i > 0 || unit != begin, sums);
        const int stage = at.stage;
        at.advance();
        wait_for_unit(walk, unit + i + 1, at, shared);
        const Codes codes = codes_of(walk, at.stage);
        wait_async<1>();
        if (walk.held >= 0) release(walk.held, shared);
        walk.held = stage;
        if (i + 1 == kChunkUnits) walk.next_chunk(unit + kChunkUnits);
        decode_unit_of(walk, codes, (i + 1) % kChunkUnits, fragment[(i + 1) % 2]);
      }
    }
    wait_async<0>();
    pin_sums(sums);
    if (walk.held >= 0) release(walk.held, shared);
    walk.held = -1;
    for (int i = 0; unit < end; ++unit, ++i) {
      if (i > 0) {
        wait_for_unit(walk, unit, at, shared);
        decode_unit_of(walk, codes_of(walk, at.stage), i, fragment[0]);
      }
      start_unit(walk, at.stage, fragment[0], unit != begin, sums);
      wait_async<0>();
      pin_sums(sums);
      release(at.stage, shared);
      at.advance();
    }
  }

  /// A group's sums of a whole job.
  template <int kBlocks>
  static __device__ __forceinline__ void multiply(const AsyncJob& job, Place& at, Shared& shared,
                                                  float (&totals)[16 * kBlocks]) {
    static_assert(!kHasGrid);
    constexpr int kSums = 16 * kBlocks;
    Walk walk;
    walk.begin(job, shared);
    FragmentA fragment[2][4];
    wait_for_unit(walk, 0, at, shared);
    decode_unit_of(walk, codes_of(walk, at.stage), 0, fragment[0]);
#pragma unroll
    for (float& total : totals) total = -0.0F;  // adds nothing, not even a sign
#pragma unroll 1
    for (int segment = 0; segment < kSegments; ++segment) {
      const int begin = segment_begin(walk.weights.units, segment);
      const int end = segment_begin(walk.weights.units, segment + 1);
      if (begin == end) continue;
      float sums[kSums] = {};
      multiply_segment(walk, begin, end, at, shared, fragment, sums);
#pragma unroll
      for (int i = 0; i < kSums; ++i) totals[i] = __fadd_rn(totals[i], sums[i]);
    }
  }
};

#endif

}  // namespace vernier::cuda
