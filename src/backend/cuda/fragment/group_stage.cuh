// Packed groups of integer codes to tensor-core fragments: the codes alone, as exact bf16 integers, and apart from them
// the fp32 scale and minimum of a group for the rows of a lane.
#pragma once

#include <cuda_fp16.h>

#include <cstdint>

#include "backend/cuda/fragment/group_packing.h"
#include "backend/cuda/fragment/stage.cuh"

namespace vernier::cuda {

/// a - b of bf16 pairs whose differences are exact; `negative` is -b.
__device__ __forceinline__ std::uint32_t add_pair(std::uint32_t a, std::uint32_t negative) {
  std::uint32_t sum = 0;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;\n" : "=r"(sum) : "r"(a), "r"(0x3F803F80U), "r"(negative));
  return sum;
}

__device__ __forceinline__ float half_bits_to_float(std::uint32_t bits) {
  return __half2float(__ushort_as_half(static_cast<unsigned short>(bits)));
}

/// The scales of one group for the lane's rows g and g + 8.
struct GroupScale {
  float scale[2];
  float minimum[2];
};

template <Packing kPacking>
struct GroupStage {
  static constexpr GroupShape kShape = group_shape(kPacking);
  static constexpr int kUnits = kChunkUnits;
  static constexpr int kGridCols = 0;
  static constexpr int kGroupCols = kShape.group_cols;
  static constexpr bool kHasMinimum = kShape.has_minimum;
  uint4 codes[kShape.code_pieces()];
  uint4 scales[2];
  std::uint32_t factors[2];

  __device__ __forceinline__ void load(const TileCursor& at, int unit) {
    const std::byte* chunk = at.codes + unit / kUnits * kShape.chunk_bytes();
#pragma unroll
    for (int i = 0; i < kShape.code_pieces(); ++i) codes[i] = load_stream(chunk + i * kPieceBytes + at.lane * 16);
    const int row = at.lane / 4;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      scales[i] = *reinterpret_cast<const uint4*>(chunk + kShape.scales_at() + (row + 8 * i) * 16);
      if constexpr (kShape.has_factors) {
        factors[i] = *reinterpret_cast<const std::uint32_t*>(chunk + kShape.factors_at() + (row + 8 * i) * 4);
      }
    }
  }

  /// `bias`: a pair of -(128 + the codes' centre).
  __device__ __forceinline__ void decode(int unit, std::uint32_t bias, FragmentA (&out)[4]) const {
#pragma unroll
    for (int fragment = 0; fragment < 4; ++fragment) {
      if constexpr (kShape.bits == 8) {
        const uint4& piece = codes[unit * 2 + fragment / 2];
        decode_bytes(word_of(piece, fragment % 2 * 2), out[fragment].word[0], out[fragment].word[2]);
        decode_bytes(word_of(piece, fragment % 2 * 2 + 1), out[fragment].word[1], out[fragment].word[3]);
      } else {
        const std::uint32_t low = word_of(codes[unit], fragment);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          // A code of at most 7 bits in the low bits of 128 as bf16 is 128 + code.
          const std::uint32_t code = ((low >> (4 * i)) & 0x000F000F) | 0x43004300;
          out[fragment].word[i] = add_pair(code + 16 * high_bits_of(unit, fragment, i), bias);
        }
      }
    }
  }

  __device__ __forceinline__ std::uint32_t high_bits_of(int unit, int fragment, int i) const {
    if constexpr (kShape.bits == 5) return (word_of(codes[4], unit) >> (4 * fragment + i)) & 0x00010001;
    if constexpr (kShape.bits == 6) {
      const std::uint32_t word = word_of(codes[4 + unit / 2], unit % 2 * 2 + fragment / 2);
      return (word >> (8 * (fragment % 2) + 2 * i)) & 0x00030003;
    }
    return 0;
  }

  /// Signed bytes: 128 + the low seven bits, less 128 or where the sign is set 256.
  static __device__ __forceinline__ std::uint32_t decode_byte_pair(std::uint32_t w) {
    const std::uint32_t magnitude = (w & 0x007F007F) | 0x43004300;
    const std::uint32_t negative = (w & 0x00800080) | 0xC300C300;
    return add_pair(magnitude, negative);
  }
  static __device__ __forceinline__ void decode_bytes(std::uint32_t w, std::uint32_t& first, std::uint32_t& second) {
    first = decode_byte_pair(w);
    second = decode_byte_pair(w >> 8);
  }

  /// Of group `group` of the unit.
  __device__ __forceinline__ GroupScale group_scale(int unit, int group) const {
    GroupScale result = {};
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      if constexpr (kGroupCols == 16) {
        const std::uint32_t word = word_of(scales[i], unit);
        const auto code = static_cast<std::int8_t>(word >> (8 * group));
        result.scale[i] = __fmul_rn(half_bits_to_float(factors[i]), static_cast<float>(code));
      } else {
        const std::uint32_t word = word_of(scales[i], unit) >> (16 * group);
        if constexpr (kShape.has_factors) {
          const float minimum = static_cast<float>(word >> 8 & 0xFFU);
          result.scale[i] = __fmul_rn(half_bits_to_float(factors[i]), static_cast<float>(word & 0xFFU));
          result.minimum[i] = __fmul_rn(half_bits_to_float(factors[i] >> 16), minimum);
        } else {
          result.scale[i] = half_bits_to_float(word);
        }
      }
    }
    return result;
  }
};

template <Packing kPacking>
requires(has_groups(kPacking)) struct StageOf<kPacking> {
  using Type = GroupStage<kPacking>;
};

}  // namespace vernier::cuda
