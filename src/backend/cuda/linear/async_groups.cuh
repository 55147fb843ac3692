// Products of grouped weights (group_packing.h) with many tokens on Hopper: blocks, clusters and rings as
// async_product.cuh has them, but a chunk of the weights is a stage of a ring of its own.
//
// The tensor cores make the sums of one group afresh; the group's scale multiplies them in fp32, as NarrowProduct and
// WideProduct do it, in the same order. A group's columns are two halves with registers of their own: while the sums of
// one are scaled, the tensor cores are at the other. Minimums are one more group behind each chunk.
#pragma once

#include <cstdint>

#include "backend/cuda/fragment/group_stage.cuh"
#include "backend/cuda/linear/async_clusters.cuh"
#include "backend/cuda/linear/async_product.cuh"
#include "backend/cuda/linear/tiled_groups.h"

namespace vernier::cuda {

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

/// The rings, and totals of finished segments: a value of each of the 256 threads that multiply in a row.
template <Packing kPacking>
struct GroupsShared {
  static constexpr GroupShape kShape = group_shape(kPacking);
  static constexpr int kTotals = 64;
  static constexpr int kTileCodes = kShape.chunk_bytes();
  static constexpr int kCodeBytes = 8 * kTileCodes;
  static constexpr int kCodeDepth = kCodeBytes <= 20 * 1024 ? 3 : 2;
  static constexpr int kInputBytes = 4 * kTileBytes;
  static constexpr int kDepth = ((224 - kTotals) * 1024 - kCodeDepth * kCodeBytes) / kInputBytes;
  alignas(1024) std::byte input[kDepth][kInputBytes];
  alignas(128) std::byte codes[kCodeDepth][kCodeBytes];
  alignas(8) std::uint64_t full[kDepth];
  alignas(8) std::uint64_t empty[kDepth];
  alignas(8) std::uint64_t codes_full[kCodeDepth];
  alignas(8) std::uint64_t codes_empty[kCodeDepth];
  float totals[kTotals][256];
};

template <Packing kPacking>
struct AsyncGroups {
  using Shared = GroupsShared<kPacking>;
  using InputPlace = RingPlace<Shared::kDepth>;
  using CodePlace = RingPlace<Shared::kCodeDepth>;
  static constexpr GroupShape kShape = group_shape(kPacking);
  static constexpr int kGroups = kUnitCols / kShape.group_cols();  ///< of a unit
  static constexpr int kSteps = 4 / kGroups;                       ///< instructions, or fragments, of a group

  static __device__ void init(Shared& shared) {
    if (threadIdx.x == 0) {
      for (int i = 0; i < Shared::kDepth; ++i) {
        init_barrier(shared_address(&shared.full[i]), 1);
        init_barrier(shared_address(&shared.empty[i]), 2 * 8);  // the warps of the cluster
      }
      for (int i = 0; i < Shared::kCodeDepth; ++i) {
        init_barrier(shared_address(&shared.codes_full[i]), 1);
        init_barrier(shared_address(&shared.codes_empty[i]), 8);
      }
      asm volatile("fence.mbarrier_init.release.cluster;\n" ::: "memory");
    }
    sync_cluster();
  }

  /// Two threads of a block, which share the half of the input that it fetches for the cluster.
  static __device__ void produce_input(const AsyncJob& job, const TiledInput& x, InputPlace& at, Shared& shared) {
    const int own = static_cast<int>(threadIdx.x) / 32 % 4;
    const int block = static_cast<int>(cluster_rank()) + own * 2;
    const bool has_block = block < job.blocks;
    const std::byte* input = x.tile(job.block + (has_block ? block : 0), 0);
#pragma unroll 1
    for (int i = 0; i < x.units; ++i) {
      const std::uint32_t full = shared_address(&shared.full[at.stage]);
      wait_idly(shared_address(&shared.empty[at.stage]), at.parity ^ 1);
      if (own == 0) arrive_expecting(full, static_cast<std::uint32_t>(job.blocks * kTileBytes));
      if (has_block)
        bulk_copy_to_all(shared_address(shared.input[at.stage]) + block * kTileBytes, input, kTileBytes, full, 3);
      input += kTileBytes;
      at.advance();
    }
  }

  /// Two others, of which each asks for four row tiles of each chunk; those beyond the matrix repeat its last.
  static __device__ void produce_codes(const AsyncJob& job, CodePlace& at, Shared& shared) {
    const int half = static_cast<int>(threadIdx.x) / 32 % 2;
    const WeightRef& w = job.matrix->weight;
    const int chunks = (w.units + kChunkUnits - 1) / kChunkUnits;
    const int last = (w.rows - 1) / kTileRows;
    const std::byte* from[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      from[i] = w.codes + std::int64_t{min(job.tile + half * 4 + i, last)} * chunks * Shared::kTileCodes;
    }
#pragma unroll 1
    for (int chunk = 0; chunk < chunks; ++chunk) {
      const std::uint32_t full = shared_address(&shared.codes_full[at.stage]);
      wait_idly(shared_address(&shared.codes_empty[at.stage]), at.parity ^ 1);
      if (half == 0) arrive_expecting(full, Shared::kCodeBytes);
      const std::uint32_t to = shared_address(shared.codes[at.stage]) + half * 4 * Shared::kTileCodes;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        bulk_copy(to + i * Shared::kTileCodes, from[i] + chunk * Shared::kTileCodes, Shared::kTileCodes, full);
      }
      at.advance();
    }
  }

  static __device__ __forceinline__ std::uint32_t word_at(const std::byte* from) {
    return *reinterpret_cast<const std::uint32_t*>(from);
  }

  /// Where a lane finds its parts of its warp's chunk in the ring's first stage.
  struct LanePlace {
    const std::byte* codes;
    const std::byte* scales;
    const std::byte* factors;
    const std::byte* minimums;

    static __device__ LanePlace of(const std::byte* chunk) {
      constexpr int kMinimumsAt = kShape.has_factors() ? kShape.scales_at() : kShape.minimums_at();
      const int lane = static_cast<int>(threadIdx.x) % 32;
      return {chunk + lane * 16, chunk + kShape.scales_at() + lane / 4 * 16, chunk + kShape.factors_at() + lane / 4 * 4,
              chunk + kMinimumsAt + lane * 4};
    }
    [[nodiscard]] __device__ __forceinline__ LanePlace of_stage(int stage) const {
      const int ahead = stage * Shared::kCodeBytes;
      return {codes + ahead, scales + ahead, factors + ahead, minimums + ahead};
    }
    __device__ __forceinline__ void load_factors(std::uint32_t (&into)[2]) const {
      if constexpr (kShape.has_factors()) {
        into[0] = word_at(factors);
        into[1] = word_at(factors + 8 * 4);
      }
    }
  };

  /// A lane's codes of a unit, and words of its rows' scales.
  struct Unit {
    GroupCodes<kPacking> codes;
    GroupWords words;

    /// Unit `own` of the chunk.
    __device__ __forceinline__ void load(const LanePlace& chunk, int own) {
      const std::byte* piece = chunk.codes;
      if constexpr (kShape.bits == 8) {
        codes.bytes[0] = *reinterpret_cast<const uint4*>(piece + own * 2 * kPieceBytes);
        codes.bytes[1] = *reinterpret_cast<const uint4*>(piece + own * 2 * kPieceBytes + kPieceBytes);
      }
      if constexpr (kShape.fours() > 0) codes.fours = *reinterpret_cast<const uint4*>(piece + own * kPieceBytes);
      if constexpr (kShape.twos() > 0) {
        const uint2 pair =
            *reinterpret_cast<const uint2*>(piece + kShape.fours() * kPieceBytes + own / 2 * kPieceBytes + own % 2 * 8);
        codes.twos[0] = pair.x;
        codes.twos[1] = pair.y;
      }
      if constexpr (kShape.ones() > 0) codes.ones = word_at(piece + (kShape.code_pieces() - 1) * kPieceBytes + own * 4);
      words.scales[0] = word_at(chunk.scales + own * 4);
      words.scales[1] = word_at(chunk.scales + own * 4 + 8 * 16);
      chunk.load_factors(words.factors);
    }
  };

  /// A group on its way through the tensor cores.
  struct Group {
    FragmentA a[kSteps];
    GroupScale scale;

    __device__ __forceinline__ void decode(const Unit& unit, int group, std::uint32_t bias) {
#pragma unroll
      for (int i = 0; i < kSteps; ++i) {
        unit.codes.decode(group * kSteps + i, bias, a[i]);
        pin_fragment(a[i]);
      }
      scale = group_scale<kPacking>(unit.words, group);
    }
  };
  /// Keeps the compiler from putting off what makes a fragment.
  static __device__ __forceinline__ void pin_fragment(FragmentA& a) {
    asm volatile("" : "+r"(a.word[0]), "+r"(a.word[1]), "+r"(a.word[2]), "+r"(a.word[3])::"memory");
  }

  /// The group behind a chunk. Its operands are those of GroupMinimums::add(): where groups have 16 columns, both pairs
  /// for each term of the sums; else the first multiplies terms 0 and 1, the second 2 and nothing (or 2 and 0), the
  /// third 1 and 2.
  struct MinimumGroup {
    static constexpr bool kIsPair = kShape.group_cols() == 16;
    static constexpr int kCount = !kIsPair && kShape.has_factors() ? 2 : 3;
    FragmentA a[kCount];
    GroupScale scale;

    __device__ __forceinline__ void load(const LanePlace& chunk) {
      const std::uint32_t words[2] = {word_at(chunk.minimums), word_at(chunk.minimums + 8 * 16)};
      std::uint32_t factors[2] = {};
      chunk.load_factors(factors);
      GroupMinimums<kPacking> minimums;
      minimums.decode(words, factors);
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        const int low = !kIsPair && i == 2 ? 1 : 0;
        const int high = kIsPair || (i > 0 && !kShape.has_factors()) ? 1 : 0;
        const auto& pair = minimums.pair;
        a[i] = {{pair[0][low], pair[1][low], pair[0][high], pair[1][high]}};
        pin_fragment(a[i]);
      }
      scale = {{minimums.factor[0], minimums.factor[1]}};
    }
  };

  static __device__ __forceinline__ void release(int stage, Shared& shared) {
    const unsigned lane = threadIdx.x % 32;
    if (lane < 2) arrive_at(shared_address(&shared.empty[stage]), lane);
  }
  static __device__ __forceinline__ void release_codes(int stage, Shared& shared) {
    __syncwarp();
    if (threadIdx.x % 32 == 0) arrive_here(shared_address(&shared.codes_empty[stage]));
  }

  /// Leaves a group, and half of the columns, to the tensor cores.
  template <int kCount, int kSums>
  static __device__ __forceinline__ void start(const FragmentA (&a)[kCount], std::uint64_t b, float (&part)[kSums]) {
    begin_async();
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      multiply_add_async(part, a[i], b + static_cast<std::uint64_t>(i * kDescriptorStep), i > 0);
    }
    commit_async();
  }
  /// Adds scaled sums to those from `first` on.
  template <int kPart, int kSums>
  static __device__ __forceinline__ void add(const GroupScale& scale, float (&part)[kPart], float (&sums)[kSums],
                                             int first = 0) {
    pin_sums(part);
#pragma unroll
    for (int i = 0; i < kPart; ++i) sums[first + i] = __fmaf_rn(scale.scale[i % 4 / 2], part[i], sums[first + i]);
  }

  /// What happens while groups are multiplied.
  template <class Load, class Prepare, class Ready>
  struct Meanwhile {
    Load load;        ///< early in the last group: gets the codes behind it
    Prepare prepare;  ///< prepare(g) makes the group behind group g
    Ready ready;      ///< waits for what comes next
  };

  /// A group of warps at work on a job: its place in the rings, its sums (kSums a thread of each half of the columns),
  /// and what it holds of the next unit.
  template <int kSums>
  struct Worker {
    static constexpr int kHalf = kSums * 2 * 128 / 16;  ///< of the columns' rows in a stage: units of 16 bytes
    Shared& shared;
    InputPlace& at;
    CodePlace& codes_at;
    LanePlace codes;
    std::uint32_t input;  ///< the lower half of the descriptor of the input's first stage
    int units;
    std::uint32_t bias;
    Unit unit;
    static constexpr bool kAtOnce = kSums * kGroups <= 32;
    Group groups[kAtOnce ? kGroups : 2];
    float sums[2 * kSums];

    /// Of what lies `ahead` units of 16 bytes behind the beginning of the stage.
    __device__ __forceinline__ std::uint64_t descriptor(int ahead) const {
      const std::uint64_t upper_half = describe_b(0) >> 32 << 32;
      return upper_half | (input + static_cast<std::uint32_t>(at.stage * (Shared::kInputBytes / 16) + ahead));
    }
    __device__ __forceinline__ void wait_for_next() const {
      InputPlace next = at;
      next.advance();
      wait_for_phase(shared_address(&shared.full[next.stage]), next.parity);
    }
    __device__ __forceinline__ void end_stage() {
      release(at.stage, shared);
      at.advance();
    }
    __device__ __forceinline__ LanePlace chunk() const { return codes.of_stage(codes_at.stage); }
    __device__ __forceinline__ void begin_chunk() {
      wait_for_phase(shared_address(&shared.codes_full[codes_at.stage]), codes_at.parity);
      unit.load(chunk(), 0);
    }
    /// Leaves the chunk for the next one.
    __device__ __forceinline__ void next_chunk(bool is_last) {
      release_codes(codes_at.stage, shared);
      codes_at.advance();
      if (!is_last) begin_chunk();
    }
    __device__ __forceinline__ void decode_first() { groups[0].decode(unit, 0, bias); }
    /// What a unit wants decoded when it begins.
    __device__ __forceinline__ void decode_ahead() {
#pragma unroll
      for (int g = 0; g < (kAtOnce ? kGroups : 1); ++g) groups[g].decode(unit, g, bias);
    }

    /// One unit of few columns, whose groups are in groups[]: no halves, all groups at once, since what counts is how
    /// long a unit takes alone. Afterwards the next one's are there, if there is one.
    __device__ __forceinline__ void multiply_at_once(int number) {
      const int own = number % kChunkUnits;
      const bool is_last = number + 1 == units;
      const bool ends_chunk = own == kChunkUnits - 1 || is_last;
      float part[kGroups][2 * kSums];
#pragma unroll
      for (int g = 0; g < kGroups; ++g) start(groups[g].a, descriptor(g * kSteps * kDescriptorStep), part[g]);
      MinimumGroup minimum;
      if constexpr (kShape.has_minimum) {
        if (ends_chunk) minimum.load(chunk());
      }
      if (ends_chunk) {
        next_chunk(is_last);
      } else {
        unit.load(chunk(), own + 1);
      }
      if (kShape.has_minimum || !is_last) wait_for_next();
      wait_async<0>();
#pragma unroll
      for (int g = 0; g < kGroups; ++g) add(groups[g].scale, part[g], sums);
      decode_ahead();
      end_stage();
      if constexpr (kShape.has_minimum) {
        if (ends_chunk) {
          start(minimum.a, descriptor(0), part[0]);
          if (!is_last) wait_for_next();
          wait_async<0>();
          add(minimum.scale, part[0], sums);
          end_stage();
        }
      }
    }

    /// Groups that follow each other: sums of a half are scaled while the tensor cores are at the other. Leaves nothing
    /// with them: else the compiler serialises all products.
    template <int kCount, class AnyGroup, int kRing, class Tasks>
    __device__ __forceinline__ void multiply_groups(AnyGroup (&ring)[kRing], const Tasks& meanwhile) {
      float part[2][kSums];
      GroupScale last;
#pragma unroll
      for (int g = 0; g < kCount; ++g) {
        const AnyGroup& group = ring[g % kRing];
        start(group.a, descriptor(g * kSteps * kDescriptorStep), part[0]);
        if (g + 1 == kCount) meanwhile.load();
        if (g > 0) {
          wait_async<1>();
          add(last, part[1], sums, kSums);
        }
        start(group.a, descriptor(g * kSteps * kDescriptorStep + kHalf), part[1]);
        last = group.scale;
        meanwhile.prepare(g);
        wait_async<1>();
        add(last, part[0], sums);
      }
      meanwhile.ready();  // between the two: else the compiler has all wait for the second half
      wait_async<0>();
      add(last, part[1], sums, kSums);
      end_stage();
    }

    /// One unit, whose first group is in groups[0]. Afterwards the next one's is, if there is one.
    __device__ __forceinline__ void multiply_unit(int number) {
      const int own = number % kChunkUnits;
      const bool is_last = number + 1 == units;
      const bool ends_chunk = own == kChunkUnits - 1 || is_last;
      MinimumGroup minimum[1];
      const auto load = [&]() __attribute__((always_inline)) {
        if (!ends_chunk) {
          unit.load(chunk(), own + 1);
        } else if constexpr (!kShape.has_minimum) {
          next_chunk(is_last);
        }
      };
      const auto prepare = [&](int g) __attribute__((always_inline)) {
        if (g + 1 < kGroups) return groups[(g + 1) % 2].decode(unit, g + 1, bias);
        if constexpr (kShape.has_minimum) {
          if (ends_chunk) return minimum[0].load(chunk());
        }
        decode_first();
      };
      const auto ready = [&]() __attribute__((always_inline)) {
        if (kShape.has_minimum || !is_last) wait_for_next();
      };
      multiply_groups<kGroups>(groups,
                               Meanwhile<decltype(load), decltype(prepare), decltype(ready)>{load, prepare, ready});
      if constexpr (kShape.has_minimum) {
        if (ends_chunk) multiply_minimum(minimum, is_last);
      }
    }

    __device__ __forceinline__ void multiply_minimum(MinimumGroup (&minimum)[1], bool is_last) {
      const auto load = [&]() __attribute__((always_inline)) { next_chunk(is_last); };
      const auto prepare = [&](int) __attribute__((always_inline)) { decode_first(); };
      const auto ready = [&]() __attribute__((always_inline)) {
        if (!is_last) wait_for_next();
      };
      multiply_groups<1>(minimum, Meanwhile<decltype(load), decltype(prepare), decltype(ready)>{load, prepare, ready});
    }
  };

  /// A group's sums of a whole job.
  template <int kBlocks>
  static __device__ __forceinline__ void multiply(const AsyncJob& job, InputPlace& at, CodePlace& codes_at,
                                                  Shared& shared, float (&totals)[16 * kBlocks]) {
    constexpr int kSums = 8 * kBlocks;
    const WeightRef& w = job.matrix->weight;
    const LanePlace codes = LanePlace::of(shared.codes[0] + threadIdx.x / 32 * Shared::kTileCodes);
    const auto input = static_cast<std::uint32_t>(describe_b(shared_address(shared.input[0])));
    Worker<kSums> worker = {shared, at, codes_at, codes, input, w.units, w.scale_bias, {}, {}, {}};
    worker.begin_chunk();
    worker.decode_ahead();
    wait_for_phase(shared_address(&shared.full[at.stage]), at.parity);
    bool is_first = true;
#pragma unroll 1
    for (int segment = 0; segment < kSegments; ++segment) {
      const int end = segment_begin(worker.units, segment + 1);
      int number = segment_begin(worker.units, segment);
      if (number == end) continue;
#pragma unroll
      for (int i = 0; i < 2 * kSums; ++i) worker.sums[i] = 0.0F;
#pragma unroll 1
      for (; number < end; ++number) {
        if constexpr (Worker<kSums>::kAtOnce) {
          worker.multiply_at_once(number);
        } else {
          worker.multiply_unit(number);
        }
      }
#pragma unroll
      for (int i = 0; i < 2 * kSums; ++i) {
        float& total = shared.totals[i][threadIdx.x];
        const float sum = worker.sums[i];
        total = is_first ? sum : __fadd_rn(total, sum);
      }
      is_first = false;
    }
#pragma unroll
    for (int i = 0; i < 2 * kSums; ++i) totals[i] = shared.totals[i][threadIdx.x];
  }
};

#endif

}  // namespace vernier::cuda
