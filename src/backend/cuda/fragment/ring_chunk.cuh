// A tile's chunk of packed weights as bulk copies bring it into shared memory, where it lies as packing.h has it, and
// as a warp takes it from there and makes bf16 numbers of it.
#pragma once

#include "backend/cuda/fragment/stage.cuh"
#include "backend/cuda/fragment/wgmma.cuh"

namespace vernier::cuda {

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

/// bulk_copy() of what is read once: it must not push other memory out of the second-level cache.
__device__ __forceinline__ void bulk_copy_stream(std::uint32_t to, const void* from, std::uint32_t bytes,
                                                 std::uint32_t barrier) {
  constexpr std::uint64_t kEvictFirst = 0x12F0000000000000;  // as createpolicy makes it
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], %4;\n" ::
          "r"(to),
      "l"(from), "r"(bytes), "r"(barrier), "l"(kEvictFirst)
      : "memory");
}
/// True in one lane of a warp, all of whose lanes are here. The compiler knows that it is one: copies that it guards
/// need no loop over lanes.
__device__ __forceinline__ bool is_elected() {
  unsigned elected = 0;
  asm volatile("{\n.reg .pred p;\nelect.sync _|p, 0xFFFFFFFF;\nselp.u32 %0, 1, 0, p;\n}\n" : "=r"(elected));
  return elected != 0;
}

#endif

__device__ __forceinline__ uint4 load_shared(std::uint32_t from) {
  uint4 value;
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];\n"
               : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
               : "r"(from)
               : "memory");
  return value;
}
__device__ __forceinline__ uint2 load_shared_half(std::uint32_t from) {
  uint2 value;
  asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];\n" : "=r"(value.x), "=r"(value.y) : "r"(from) : "memory");
  return value;
}

/// Of packings without groups. load() takes addresses of the chunk's codes and scales; decode() makes the fragments of
/// one of its units.
template <Packing kPacking>
struct RingChunk {
  using Unit = typename UnitStageOf<kPacking>::Type;
  static constexpr int kGridCols = Unit::kGridCols;
  Unit unit_of[kChunkUnits];

  __device__ __forceinline__ void load(std::uint32_t codes, std::uint32_t) {
    const std::uint32_t from = codes + threadIdx.x % 32 * 16;
#pragma unroll
    for (int i = 0; i < kChunkUnits; ++i) {
      const std::uint32_t unit = from + i * unit_bytes(kPacking);
      if constexpr (code_bits(kPacking) == 8) {
        unit_of[i].codes[0][0] = load_shared(unit);
        unit_of[i].codes[0][1] = load_shared(unit + kPieceBytes);
      } else {
#pragma unroll
        for (int piece = 0; piece < 4; ++piece) unit_of[i].codes[piece] = load_shared(unit + piece * kPieceBytes);
      }
    }
  }
  /// A word of each number that load() reads.
  [[nodiscard]] __device__ __forceinline__ std::uint32_t read_all() const {
    std::uint32_t all = 0;
#pragma unroll
    for (int i = 0; i < kChunkUnits * pieces_per_unit(kPacking); ++i) {
      const Unit& unit = unit_of[i / pieces_per_unit(kPacking)];
      if constexpr (code_bits(kPacking) == 8) {
        all |= unit.codes[0][i % 2].x;
      } else {
        all |= unit.codes[i % 4].x;
      }
    }
    return all;
  }
  __device__ __forceinline__ void decode(int unit, std::uint32_t bias, FragmentA (&out)[4]) const {
    unit_of[unit].decode(0, bias, out);
  }
};
template <Packing kPacking>
requires(code_bits(kPacking) == 4) struct RingChunk<kPacking> {
  static constexpr int kGridCols = 0;
  uint4 codes_of[kChunkUnits];
  uint2 scales_of;

  __device__ __forceinline__ void load(std::uint32_t codes, std::uint32_t scales) {
    const std::uint32_t lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < kChunkUnits; ++i) codes_of[i] = load_shared(codes + i * kPieceBytes + lane * 16);
    constexpr int kLanes = scale_cols(kPacking) / 16;  // that share scales
    scales_of = load_shared_half(scales + lane / kLanes * 8);
  }
  [[nodiscard]] __device__ __forceinline__ std::uint32_t read_all() const {
    return codes_of[0].x | codes_of[1].x | codes_of[2].x | codes_of[3].x | scales_of.x;
  }
  /// What CodedStage::decode() makes, with one instruction less for eight codes: bits that go left by 6 and by 1 never
  /// meet, so that one multiplication shifts both.
  __device__ __forceinline__ void decode(int unit, std::uint32_t bias, FragmentA (&out)[4]) const {
    const std::uint32_t both = unit < 2 ? scales_of.x : scales_of.y;
    constexpr std::uint32_t kStep = kPacking == Packing::kE2M1ByE4M3 ? 16 : 128;
    const std::uint32_t pair = __byte_perm(both, 0, unit % 2 == 0 ? 0x4140 : 0x4342) * kStep + bias;
    const std::uint32_t low = __byte_perm(pair, 0, 0x1010);   // row g
    const std::uint32_t high = __byte_perm(pair, 0, 0x3232);  // row g + 8
#pragma unroll
    for (int fragment = 0; fragment < 4; ++fragment) {
      const std::uint32_t w = word_of(codes_of[unit], fragment);
      out[fragment].word[0] = multiply_pair(w & 0x81C081C0, low);
      out[fragment].word[1] = multiply_pair((w << 3) & 0x81C081C0, high);
      out[fragment].word[2] = multiply_pair(((w & 0x40074007) * 0x42) & 0x81C081C0, low);
      out[fragment].word[3] = multiply_pair(((w >> 3) & 0x01C001C0) | ((w << 2) & 0x80008000), high);
    }
  }
};

}  // namespace vernier::cuda
