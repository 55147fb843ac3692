// Products of wide tiles, 128 rows and 256 columns: the blocks, rings and results of async_product.cuh. What a unit
// costs a group beside its products, it costs for twice as many of them. The sums take more than half of a thread's
// registers: there is one set of fragments, so a group decodes when its products have ended, and most totals are in
// shared memory.
#pragma once

#include "backend/cuda/linear/async_product.cuh"

namespace vernier::cuda {

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

template <Packing kPacking>
struct AsyncWide {
  using Base = AsyncProduct<kPacking, kWideBlocks>;
  using Shared = typename Base::Shared;
  using Place = typename Base::Place;
  using Codes = typename Base::Codes;
  static_assert(!Base::kHasGrid);
  static constexpr int kSums = 16 * kWideBlocks;
  using Sums = float[kSums];

  /// A group's walk through a job.
  struct Walk {
    const std::byte* codes;  ///< the lane's in the ring's first stage
    std::uint32_t first;     ///< of the descriptor of the ring's first stage: the half that changes
    typename Base::Weights weights;
    uint2 scales;  ///< of the chunk whose units are being decoded
    FragmentA fragment[4];
    int stage = 0;            ///< of the unit in them
    std::uint32_t input = 0;  ///< its descriptor's half
    int held = -1;            ///< the stage in front, multiplied

    __device__ void begin(const AsyncJob& job, Place& at, Shared& shared) {
      const int lane = static_cast<int>(threadIdx.x) % 32;
      const int warp = static_cast<int>(threadIdx.x) / 32;
      codes = shared.codes[0] + warp * unit_bytes(kPacking) + lane * 16;
      first = static_cast<std::uint32_t>(describe_b(shared_address(shared.input[0])));
      weights.begin(job, job.row + warp % 4 * kTileRows);
      next_chunk(0);
      decode(0, find(0, at, shared));
    }
    __device__ __forceinline__ void next_chunk(int unit) {
      if constexpr (Base::kIsCoded) {
        scales = weights.next;
        weights.load_next_in_place(unit + kChunkUnits);
      }
    }
    /// Waits for a unit, if there is one, and loads its codes.
    __device__ __forceinline__ Codes find(int unit, Place& at, Shared& shared) {
      if (unit < weights.units) {
        wait_for_phase(shared_address(&shared.full[at.stage]), at.parity);
        stage = at.stage;
        at.advance();
      }
      // Alike in all lanes: said so, the compiler has it where the instruction wants it.
      input = __shfl_sync(0xFFFFFFFFU, first + static_cast<std::uint32_t>(stage * (Shared::kInputBytes / 16)), 0);
      return Codes::load(codes + stage * Shared::kCodeBytes);
    }
    /// Unit `own` of a chunk.
    __device__ __forceinline__ void decode(int own, const Codes& found) {
      found.decode(Base::scales_of(scales, own), weights.bias, fragment);
      Base::pin_fragments(fragment);
    }
  };

  /// The products of the unit that is decoded, `own` of its chunk; then the next one is.
  static __device__ __forceinline__ void multiply_unit(Walk& walk, int unit, int own, int keep, Place& at,
                                                       Shared& shared, Sums& sums) {
    constexpr std::uint64_t kLayout = describe_b(0) >> 32 << 32;
    const int held = walk.stage;
    begin_async();
#pragma unroll
    for (int step = 0; step < 4; ++step) {
      multiply_add_async(sums, walk.fragment[step],
                         kLayout | (walk.input + static_cast<std::uint32_t>(step * kDescriptorStep)),
                         step > 0 ? 1 : keep);
    }
    commit_async();
    if (walk.held >= 0) Base::release(walk.held, shared);
    walk.held = held;
    const Codes found = walk.find(unit + 1, at, shared);
    if (own + 1 == kChunkUnits) walk.next_chunk(unit + 1);
    wait_async<0>();
    pin_sums(sums);
    walk.decode((own + 1) % kChunkUnits, found);
  }

  /// Sums of a segment, whose first unit is decoded: whole chunks and what remains of the last. Leaves nothing with the
  /// tensor cores.
  static __device__ __forceinline__ void multiply_segment(Walk& walk, int begin, int end, Place& at, Shared& shared,
                                                          Sums& sums) {
    pin_sums(sums);
    int unit = begin;
#pragma unroll 1
    for (; unit + kChunkUnits <= end; unit += kChunkUnits) {
#pragma unroll
      for (int own = 0; own < kChunkUnits; ++own) {
        multiply_unit(walk, unit + own, own, own > 0 || unit != begin, at, shared, sums);
      }
    }
#pragma unroll 1
    for (int own = 0; unit < end; ++unit, ++own) multiply_unit(walk, unit, own, unit != begin, at, shared, sums);
  }

  /// Four totals of a thread at a time.
  static __device__ __forceinline__ float4& shared_totals(Shared& shared, int i) {
    return reinterpret_cast<float4*>(shared.totals)[i / 4 * 256 + static_cast<int>(threadIdx.x)];
  }
  /// Sums become totals plus sums, if there are totals.
  static __device__ __forceinline__ void add_totals(const Sums& totals, Shared& shared, bool has_totals, Sums& sums) {
    if (!has_totals) return;
#pragma unroll
    for (int i = 0; i < Shared::kTotals; i += 4) {
      const float4 four = shared_totals(shared, i);
      sums[i] = __fadd_rn(four.x, sums[i]);
      sums[i + 1] = __fadd_rn(four.y, sums[i + 1]);
      sums[i + 2] = __fadd_rn(four.z, sums[i + 2]);
      sums[i + 3] = __fadd_rn(four.w, sums[i + 3]);
    }
#pragma unroll
    for (int i = Shared::kTotals; i < kSums; ++i) sums[i] = __fadd_rn(totals[i], sums[i]);
  }

  /// A group's sums of a whole job.
  static __device__ __forceinline__ void multiply(const AsyncJob& job, Place& at, Shared& shared, Sums& totals) {
    Walk walk;
    walk.begin(job, at, shared);
    bool has_totals = false;
#pragma unroll
    for (float& total : totals) total = 0.0F;
#pragma unroll 1
    for (int segment = 0; segment < kSegments; ++segment) {
      const int begin = segment_begin(walk.weights.units, segment);
      const int end = segment_begin(walk.weights.units, segment + 1);
      if (begin == end) continue;  // never the last
      Sums sums = {};
      multiply_segment(walk, begin, end, at, shared, sums);
      forget_shared();
      add_totals(totals, shared, has_totals, sums);
      has_totals = true;
      if (segment + 1 == kSegments) {
        Base::release(walk.held, shared);
#pragma unroll
        for (int i = 0; i < kSums; ++i) totals[i] = sums[i];
        break;
      }
#pragma unroll
      for (int i = 0; i < Shared::kTotals; i += 4) {
        shared_totals(shared, i) = {sums[i], sums[i + 1], sums[i + 2], sums[i + 3]};
      }
#pragma unroll
      for (int i = Shared::kTotals; i < kSums; ++i) totals[i] = sums[i];
    }
  }
};

#endif

}  // namespace vernier::cuda
