// Products of weights with scales of a grid, 128 rows and up to 128 columns: the blocks, rings and results of
// async_product.cuh, but that a stage of the ring has two units. The tensor cores make the sums of these 128 columns of
// the weight afresh, and a scale multiplies them in fp32. Sums and their parts take the registers; totals of finished
// segments are in shared memory.
//
// While the tensor cores are at a unit, the next is decoded, be it of the next 128 columns, and a segment's sums join
// the totals while they are at the next segment's first unit.
#pragma once

#include "backend/cuda/linear/async_product.cuh"

namespace vernier::cuda {

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

template <int kBlocks>
struct AsyncGrid {
  using Base = AsyncProduct<Packing::kE4M3ByGrid>;
  using Shared = typename Base::Shared;
  using Place = typename Base::Place;
  static constexpr int kSums = 16 * kBlocks;
  using Sums = float[kSums];
  static_assert(kSums <= Shared::kTotals);

  using Codes = typename Base::Codes;
  using Fragments = FragmentA[4];

  /// A group's walk through a job: a stage of the ring has the two units under one scale.
  struct Walk {
    Shared& shared;
    Place& at;
    const std::byte* codes;  ///< the lane's in the ring's first stage
    std::uint32_t input;     ///< of the descriptor of the ring's first stage: the half that changes
    typename Base::Weights weights;
    int units;
    int stage = 0;

    __device__ Walk(const AsyncJob& job, Place& place, Shared& ring) : shared(ring), at(place) {
      const int warp = static_cast<int>(threadIdx.x) / 32;
      codes = ring.codes[0] + warp * Shared::kTileCodes + static_cast<int>(threadIdx.x) % 32 * 16;
      input = static_cast<std::uint32_t>(describe_b(shared_address(ring.input[0])));
      weights.begin(job, job.row + warp % 4 * kTileRows);
      // Alike in all lanes: not told so, the compiler takes branches for divergent and serialises all products.
      units = __shfl_sync(0xFFFFFFFFU, weights.units, 0);
    }
    /// Waits for the stage of a unit, if there is one, and moves to it.
    __device__ __forceinline__ void find(int unit) {
      if (unit >= units) return;
      wait_for_phase(shared_address(&shared.full[at.stage]), at.parity);
      stage = at.stage;
      at.advance();
    }
    /// Codes of the stage's unit 0 or 1; of what isn't there, nobody needs.
    [[nodiscard]] __device__ __forceinline__ Codes load(int own) const {
      return Codes::load(codes + stage * Shared::kCodeBytes + own * unit_bytes(Packing::kE4M3ByGrid));
    }
    static __device__ __forceinline__ void decode(const Codes& codes, Fragments& fragment) {
      codes.decode(0, 0, fragment);
      Base::pin_fragments(fragment);
    }
    /// Leaves a decoded unit of a stage to the tensor cores.
    __device__ __forceinline__ void start(int of_stage, int own, const Fragments& fragment, Sums& part) const {
      constexpr std::uint64_t kLayout = describe_b(0) >> 32 << 32;
      const std::uint32_t b =
          input + static_cast<std::uint32_t>((of_stage * Shared::kUnits + own) * (Shared::kUnitInput / 16));
      begin_async();
#pragma unroll
      for (int step = 0; step < 4; ++step) {
        multiply_add_async(part, fragment[step], kLayout | (b + static_cast<std::uint32_t>(step * kDescriptorStep)),
                           step > 0 || own > 0 ? 1 : 0);
      }
      commit_async();
    }
    /// The scales of a lane's two rows.
    [[nodiscard]] __device__ __forceinline__ float2 scales(int unit) const {
      return {weights.grid[0][unit / Shared::kUnits], weights.grid[1][unit / Shared::kUnits]};
    }
  };

  /// What has been summed up: of this segment, and in shared memory of those before.
  struct Totals {
    Shared& shared;
    Sums& sums;
    int units;
    int segment = 0;
    int end = 0;  ///< of the segment: a unit
    bool has_any = false;

    __device__ Totals(Shared& memory, int of_units, Sums& values) : shared(memory), sums(values), units(of_units) {
      next_segment(0);
    }
    __device__ __forceinline__ void next_segment(int unit) {
#pragma unroll
      for (float& sum : sums) sum = 0.0F;
      do {
        end = segment_begin(units, ++segment);
      } while (end <= unit);
    }
    __device__ __forceinline__ float4& four(int i) const {
      return reinterpret_cast<float4*>(shared.totals)[i / 4 * 256 + static_cast<int>(threadIdx.x)];
    }
    /// Sums become totals plus sums.
    __device__ __forceinline__ void add() {
      if (!has_any) return;
#pragma unroll
      for (int i = 0; i < kSums; i += 4) {
        const float4 total = four(i);
        sums[i] = __fadd_rn(total.x, sums[i]);
        sums[i + 1] = __fadd_rn(total.y, sums[i + 1]);
        sums[i + 2] = __fadd_rn(total.z, sums[i + 2]);
        sums[i + 3] = __fadd_rn(total.w, sums[i + 3]);
      }
    }
    /// Before the products of `unit` are added: it may be of another segment.
    __device__ __forceinline__ void move_to(int unit) {
      if (unit != end) return;
      add();
#pragma unroll
      for (int i = 0; i < kSums; i += 4) four(i) = {sums[i], sums[i + 1], sums[i + 2], sums[i + 3]};
      has_any = true;
      next_segment(unit);
    }
    __device__ __forceinline__ void add_scaled(const float2& scales, Sums& part) {
      pin_sums(part);
#pragma unroll
      for (int i = 0; i < kSums; ++i) sums[i] = __fmaf_rn(i % 4 < 2 ? scales.x : scales.y, part[i], sums[i]);
    }
  };

  /// A group's sums of a whole job.
  static __device__ __forceinline__ void multiply(const AsyncJob& job, Place& at, Shared& shared, Sums& sums) {
    Walk walk(job, at, shared);
    walk.find(0);
    Fragments fragment[2];
    Walk::decode(walk.load(0), fragment[0]);
    Codes codes = walk.load(1);
    Totals totals(shared, walk.units, sums);
    int unit = 0;
#pragma unroll 1
    for (; unit + 2 <= walk.units; unit += 2) {
      Sums part;
      const int stage = walk.stage;
      walk.start(stage, 0, fragment[0], part);
      const float2 scales = walk.scales(unit);
      totals.move_to(unit);
      Walk::decode(codes, fragment[1]);
      walk.start(stage, 1, fragment[1], part);
      walk.find(unit + 2);
      codes = walk.load(0);
      wait_async<1>();
      Walk::decode(codes, fragment[0]);
      codes = walk.load(1);
      wait_async<0>();
      totals.add_scaled(scales, part);
      Base::release(stage, shared);
    }
    if (unit < walk.units) {
      Sums part;
      walk.start(walk.stage, 0, fragment[0], part);
      totals.move_to(unit);
      wait_async<0>();
      totals.add_scaled(walk.scales(unit), part);
      Base::release(walk.stage, shared);
    }
    totals.add();
  }
};

#endif

}  // namespace vernier::cuda
