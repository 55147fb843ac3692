// Packed groups of integer codes to tensor-core fragments: the codes alone, as exact bf16 integers, and apart from them
// the fp32 scale of a group for the rows of a lane, and a chunk's minimums as fragments that multiply sums of the
// input.
#pragma once

#include <cuda_fp16.h>

#include <cstdint>

#include "backend/cuda/fragment/group_packing.h"
#include "backend/cuda/fragment/stage.cuh"
#include "format/iq4.h"

namespace vernier::cuda {

/// a * b in fp32.
__device__ __forceinline__ void multiply(float (&products)[4], const FragmentA& a, const FragmentB& b) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%10, %10, %10, %10};\n"
      : "=f"(products[0]), "=f"(products[1]), "=f"(products[2]), "=f"(products[3])
      : "r"(a.word[0]), "r"(a.word[1]), "r"(a.word[2]), "r"(a.word[3]), "r"(b.word[0]), "r"(b.word[1]), "f"(0.0F));
}

/// a - b of bf16 pairs whose differences are exact; `negative` is -b.
__device__ __forceinline__ std::uint32_t add_pair(std::uint32_t a, std::uint32_t negative) {
  std::uint32_t sum = 0;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;\n" : "=r"(sum) : "r"(a), "r"(0x3F803F80U), "r"(negative));
  return sum;
}

/// (bits & kMask) | base by one instruction: where both are constants, the compiler makes two.
template <std::uint32_t kMask>
__device__ __forceinline__ std::uint32_t mask_onto(std::uint32_t bits, std::uint32_t base) {
  std::uint32_t result = 0;
  asm("lop3.b32 %0, %1, %2, %3, 0xEA;\n" : "=r"(result) : "r"(bits), "n"(kMask), "r"(base));
  return result;
}

__device__ __forceinline__ float half_bits_to_float(std::uint32_t bits) {
  return __half2float(__ushort_as_half(static_cast<unsigned short>(bits)));
}

/// Signed bytes: 128 + the low seven bits, less 128 or where the sign is set 256.
__device__ __forceinline__ std::uint32_t decode_byte_pair(std::uint32_t w) {
  return add_pair(mask_onto<0x007F007F>(w, 0x43004300), mask_onto<0x00800080>(w, 0xC300C300));
}
/// Bytes 0 and 2, and 1 and 3.
__device__ __forceinline__ void decode_bytes(std::uint32_t w, std::uint32_t& first, std::uint32_t& second) {
  first = decode_byte_pair(w);
  second = decode_byte_pair(w >> 8);
}

/// The table's entries as bytes, four of them from 4 `word` on.
VN_HOST_DEVICE constexpr std::uint32_t iq4_word(int word) {
  std::uint32_t bits = 0;
  for (int i = 0; i < 4; ++i) {
    const auto value = static_cast<int>(Iq4Codec::decode(static_cast<Iq4Codec::Code>(word * 4 + i)));
    bits |= static_cast<std::uint32_t>(static_cast<std::uint8_t>(value)) << (8 * i);
  }
  return bits;
}
/// The bytes that the four codes in the low half choose.
__device__ __forceinline__ std::uint32_t look_up(std::uint32_t codes) {
  constexpr std::uint32_t kTable[4] = {iq4_word(0), iq4_word(1), iq4_word(2), iq4_word(3)};
  const std::uint32_t low_bits = codes & 0x7777;
  const std::uint32_t small = __byte_perm(kTable[0], kTable[1], low_bits);
  const std::uint32_t large = __byte_perm(kTable[2], kTable[3], low_bits);
  return __byte_perm(small, large, ((codes >> 1) & 0x4444) | 0x3210);
}

/// A lane's codes of one unit.
template <Packing kPacking>
struct GroupCodes {
  static constexpr GroupShape kShape = group_shape(kPacking);
  uint4 bytes[2];  ///< 8-bit codes
  uint4 fours;
  std::uint32_t twos[2];  ///< of fragments 0 and 1, 2 and 3
  std::uint32_t ones;

  /// `bias`: a pair of -(128 + the codes' centre).
  __device__ __forceinline__ void decode(int fragment, std::uint32_t bias, FragmentA& out) const {
    if constexpr (kShape.bits == 8) {
      const uint4& piece = bytes[fragment / 2];
      decode_bytes(word_of(piece, fragment % 2 * 2), out.word[0], out.word[2]);
      decode_bytes(word_of(piece, fragment % 2 * 2 + 1), out.word[1], out.word[3]);
    } else if constexpr (kShape.has_table) {
      const std::uint32_t codes = word_of(fours, fragment);
      const std::uint32_t low = look_up(codes);  // the low halves of a0 .. a3
      const std::uint32_t high = look_up(codes >> 16);
      decode_bytes(__byte_perm(low, high, 0x5410), out.word[0], out.word[1]);
      decode_bytes(__byte_perm(low, high, 0x7632), out.word[2], out.word[3]);
    } else {
#pragma unroll
      for (int i = 0; i < 4; ++i) out.word[i] = add_pair(code_pair(fragment, i), bias);
    }
  }

 private:
  /// 128 + code of a register: a code of at most 7 bits in the low bits of 128 as bf16.
  __device__ __forceinline__ std::uint32_t code_pair(int fragment, int i) const {
    std::uint32_t code = 0x43004300;
    if constexpr (kShape.fours() > 0) code = mask_onto<0x000F000F>(word_of(fours, fragment) >> (4 * i), code);
    if constexpr (kShape.twos() > 0) {
      const std::uint32_t two = (twos[fragment / 2] >> (8 * (fragment % 2) + 2 * i)) & 0x00030003;
      code = kShape.fours() > 0 ? code + 16 * two : code | two;
    }
    if constexpr (kShape.ones() > 0) {
      code += (1U << (kShape.bits - 1)) * ((ones >> (4 * fragment + i)) & 0x00010001);
    }
    return code;
  }
};

/// Words of a row's scales in a chunk, and its factors, for the lane's rows g and g + 8.
struct GroupWords {
  std::uint32_t scales[2];
  std::uint32_t factors[2];
};
struct GroupScale {
  float scale[2];
};
/// Of group `group` of the unit whose words these are.
template <Packing kPacking>
__device__ __forceinline__ GroupScale group_scale(const GroupWords& words, int group) {
  constexpr GroupShape kShape = group_shape(kPacking);
  GroupScale result = {};
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    if constexpr (!kShape.has_factors()) {
      result.scale[i] = half_bits_to_float(words.scales[i] >> (16 * group));
    } else {
      const std::uint32_t byte = words.scales[i] >> (kShape.group_cols() / 2 * group);
      const int code = kShape.scales == GroupScales::kNibbles ? static_cast<int>(byte & 0xF)
                                                              : static_cast<int>(static_cast<std::int8_t>(byte));
      result.scale[i] = __fmul_rn(half_bits_to_float(words.factors[i]), static_cast<float>(code));
    }
  }
  return result;
}

/// Words that a lane t reads of the sums of a chunk's input: three terms of one pair of groups, or of two.
template <Packing kPacking>
struct GroupSums {
  static constexpr int kWordsOfTerm = group_shape(kPacking).group_cols() == 16 ? 2 : 1;
  std::uint32_t word[3 * kWordsOfTerm];

  /// From the lane's place on: t * lane_step() numbers from the chunk's beginning.
  static constexpr int kLaneStep = 2 * kWordsOfTerm;
  __device__ __forceinline__ void load(const std::uint16_t* from) {
#pragma unroll
    for (int term = 0; term < 3; ++term) {
      const std::uint16_t* at = from + term * 8 * kWordsOfTerm;
      if constexpr (kWordsOfTerm == 2) {
        const uint2 pair = *reinterpret_cast<const uint2*>(at);
        word[2 * term] = pair.x;
        word[2 * term + 1] = pair.y;
      } else {
        word[term] = *reinterpret_cast<const std::uint32_t*>(at);
      }
    }
  }
};

/// A chunk's minimums as operands that multiply sums of the input. What comes of it, times a factor of the row, is
/// added to the row's sums.
template <Packing kPacking>
struct GroupMinimums {
  static constexpr GroupShape kShape = group_shape(kPacking);
  std::uint32_t pair[2][2];  ///< [row g, g + 8]: two pairs of groups; or one, its upper and lower bf16 term
  float factor[2];

  /// From word t of each row's minimums, which may be among its scales.
  __device__ __forceinline__ void decode(const std::uint32_t (&words)[2], const std::uint32_t (&factors)[2]) {
    constexpr std::uint32_t kLess128 = 0xC300C300;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      if constexpr (!kShape.has_factors()) {
        const Bf16Terms low = split_terms(half_bits_to_float(words[i]));
        const Bf16Terms high = split_terms(half_bits_to_float(words[i] >> 16));
        pair[i][0] = pack_upper_halves(low.term[0], high.term[0]);
        pair[i][1] = pack_upper_halves(low.term[1], high.term[1]);
        factor[i] = 1.0F;
      } else {
        if constexpr (kShape.scales == GroupScales::kNibbles) {
          pair[i][0] = add_pair(((words[i] >> 4) & 0x000F000F) | 0x43004300, kLess128);
          pair[i][1] = add_pair(((words[i] >> 12) & 0x000F000F) | 0x43004300, kLess128);
        } else {
          pair[i][0] = add_pair(((words[i] >> 8) & 0x007F007F) | 0x43004300, kLess128);
          pair[i][1] = pair[i][0];
        }
        factor[i] = -half_bits_to_float(factors[i] >> 16);
      }
    }
  }

  __device__ __forceinline__ void add(const GroupSums<kPacking>& b, float (&sums)[4]) const {
    const FragmentA first = {{pair[0][0], pair[1][0], pair[0][0], pair[1][0]}};
    const FragmentA both = {{pair[0][0], pair[1][0], pair[0][1], pair[1][1]}};
    float part[4];
    if constexpr (GroupSums<kPacking>::kWordsOfTerm == 2) {
      multiply(part, both, {{b.word[0], b.word[1]}});
      multiply_add(part, both, {{b.word[2], b.word[3]}});
      multiply_add(part, both, {{b.word[4], b.word[5]}});
    } else if constexpr (kShape.has_factors()) {
      multiply(part, first, {{b.word[0], b.word[1]}});
      multiply_add(part, first, {{b.word[2], 0}});
    } else {
      const FragmentA second = {{pair[0][1], pair[1][1], pair[0][1], pair[1][1]}};
      multiply(part, first, {{b.word[0], b.word[1]}});
      multiply_add(part, both, {{b.word[2], b.word[0]}});
      multiply_add(part, second, {{b.word[1], b.word[2]}});
    }
#pragma unroll
    for (int j = 0; j < 4; ++j) sums[j] = __fmaf_rn(factor[j / 2], part[j], sums[j]);
  }
};

__device__ __forceinline__ std::uint32_t load_word(const std::byte* from) {
  return __ldg(reinterpret_cast<const std::uint32_t*>(from));
}

/// What a lane needs of a chunk whichever of its units it multiplies.
template <Packing kPacking>
struct GroupStageBase {
  static constexpr GroupShape kShape = group_shape(kPacking);
  static constexpr Packing kGroupPacking = kPacking;
  static constexpr int kGridCols = 0;
  static constexpr int kGroupCols = kShape.group_cols();
  static constexpr bool kHasMinimum = kShape.has_minimum;
  std::uint32_t factors[2];
  std::uint32_t minimums[2];  ///< word t of the row's

  __device__ __forceinline__ void load_factors(const std::byte* chunk, unsigned lane) {
    if constexpr (kShape.has_factors()) {
      const std::byte* row = chunk + lane / 4 * 4;
      factors[0] = load_word(row + kShape.factors_at());
      factors[1] = load_word(row + kShape.factors_at() + 8 * 4);
    }
  }
  __device__ __forceinline__ void load_minimums(const std::byte* chunk, unsigned lane) {
    if constexpr (kHasMinimum) {
      constexpr int kAt = kShape.has_factors() ? kShape.scales_at() : kShape.minimums_at();
      const std::byte* row = chunk + lane * 4;  // sixteen bytes for four lanes
      minimums[0] = load_word(row + kAt);
      minimums[1] = load_word(row + kAt + 8 * 16);
    }
  }
  __device__ __forceinline__ GroupMinimums<kPacking> minimum_fragments() const {
    GroupMinimums<kPacking> result;
    result.decode(minimums, factors);
    return result;
  }
};

/// A chunk at a time.
template <Packing kPacking>
struct GroupStage : GroupStageBase<kPacking> {
  using Base = GroupStageBase<kPacking>;
  using Base::factors;
  using Base::kShape;
  static constexpr int kUnits = kChunkUnits;
  uint4 codes[kShape.code_pieces()];
  uint4 scales[2];

  __device__ __forceinline__ void load(const TileCursor& at, int unit) {
    const std::byte* chunk = at.codes + unit / kUnits * kShape.chunk_bytes();
#pragma unroll
    for (int i = 0; i < kShape.code_pieces(); ++i) codes[i] = load_stream(chunk + i * kPieceBytes + at.lane * 16);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      scales[i] = __ldg(reinterpret_cast<const uint4*>(chunk + kShape.scales_at() + (at.lane / 4 + 8 * i) * 16));
    }
    Base::load_factors(chunk, static_cast<unsigned>(at.lane));
    Base::load_minimums(chunk, static_cast<unsigned>(at.lane));
  }

  __device__ __forceinline__ void decode(int unit, std::uint32_t bias, FragmentA (&out)[4]) const {
    GroupCodes<kPacking> own;
    if constexpr (kShape.bits == 8) {
      own.bytes[0] = codes[unit * 2];
      own.bytes[1] = codes[unit * 2 + 1];
    }
    if constexpr (kShape.fours() > 0) own.fours = codes[unit];
    if constexpr (kShape.twos() > 0) {
      own.twos[0] = word_of(codes[kShape.fours() + unit / 2], unit % 2 * 2);
      own.twos[1] = word_of(codes[kShape.fours() + unit / 2], unit % 2 * 2 + 1);
    }
    if constexpr (kShape.ones() > 0) own.ones = word_of(codes[kShape.code_pieces() - 1], unit);
#pragma unroll
    for (int fragment = 0; fragment < 4; ++fragment) own.decode(fragment, bias, out[fragment]);
  }

  /// Of group `group` of the unit.
  __device__ __forceinline__ GroupScale scale_of(int unit, int group) const {
    return group_scale<kPacking>({{word_of(scales[0], unit), word_of(scales[1], unit)}, {factors[0], factors[1]}},
                                 group);
  }
};

/// A unit at a time.
template <Packing kPacking>
struct GroupUnitStage : GroupStageBase<kPacking> {
  using Base = GroupStageBase<kPacking>;
  using Base::factors;
  using Base::kShape;
  static constexpr int kUnits = 1;
  GroupCodes<kPacking> codes;
  std::uint32_t scales[2];

  /// Units come one by one: what those of a chunk share comes with its first or last.
  __device__ __forceinline__ void load(const TileCursor& at, int unit) {
    const unsigned lane = static_cast<unsigned>(at.lane);
    const unsigned own = static_cast<unsigned>(unit) % kChunkUnits;
    const std::byte* chunk = at.codes + std::int64_t{unit / kChunkUnits} * kShape.chunk_bytes();
    const std::byte* piece = chunk + lane * 16;
    if constexpr (kShape.bits == 8) {
      codes.bytes[0] = load_stream(piece + own * 2 * kPieceBytes);
      codes.bytes[1] = load_stream(piece + own * 2 * kPieceBytes + kPieceBytes);
    }
    if constexpr (kShape.fours() > 0) codes.fours = load_stream(piece + own * kPieceBytes);
    if constexpr (kShape.twos() > 0) {
      const std::byte* from = piece + kShape.fours() * kPieceBytes + (own / 2 * kPieceBytes + own % 2 * 8);
      const uint2 pair = __ldg(reinterpret_cast<const uint2*>(from));
      codes.twos[0] = pair.x;
      codes.twos[1] = pair.y;
    }
    if constexpr (kShape.ones() > 0) {
      codes.ones = load_word(piece + (kShape.code_pieces() - 1) * kPieceBytes + own * 4);
    }
    const std::byte* row = chunk + (lane / 4 * 16 + own * 4);
    scales[0] = load_word(row + kShape.scales_at());
    scales[1] = load_word(row + kShape.scales_at() + 8 * 16);
    if (own == 0) Base::load_factors(chunk, lane);
    if (own == kChunkUnits - 1 || unit + 1 == at.units) Base::load_minimums(chunk, lane);
  }

  __device__ __forceinline__ GroupScale scale_of(int group) const {
    return group_scale<kPacking>({{scales[0], scales[1]}, {factors[0], factors[1]}}, group);
  }
};

template <Packing kPacking>
requires(has_groups(kPacking)) struct StageOf<kPacking> {
  using Type = GroupStage<kPacking>;
};
template <Packing kPacking>
requires(has_groups(kPacking)) struct UnitStageOf<kPacking> {
  using Type = GroupUnitStage<kPacking>;
};

/// A sum of the input over a group of `group_cols` columns: from the sums that consecutive lanes have of kCols columns
/// each. All lanes of `mask` (which hold whole groups); every way to the sum adds in the same order.
template <int kCols>
__device__ __forceinline__ float sum_group(float own, int group_cols, unsigned mask) {
  for (int step = 1; step * kCols < group_cols; step *= 2) own = __fadd_rn(own, __shfl_xor_sync(mask, own, step));
  return own;
}
/// The sixteen lanes that hold a unit's columns, four each.
__device__ __forceinline__ unsigned lanes_of_unit() { return 0xFFFFU << (threadIdx.x % 32 / 16 * 16); }
/// Stores the terms of a group's sum, `sums` being where the row's begin and `col` the group's first column.
__device__ __forceinline__ void store_sum(const GroupShape& shape, std::uint16_t* sums, int col, float sum) {
  const Bf16Terms split = split_terms(sum);
  std::uint16_t* const chunk = sums + col / kChunkCols * sums_of_chunk(shape);
#pragma unroll
  for (int term = 0; term < 3; ++term) {
    chunk[sum_place(shape, col % kChunkCols / shape.group_cols(), term)] = upper_half(split.term[term]);
  }
}
/// The two numbers of a bf16 pair, added.
__device__ __forceinline__ float add_halves(std::uint32_t pair) {
  return __fadd_rn(__uint_as_float(pair << 16), __uint_as_float(pair & 0xFFFF0000));
}

}  // namespace vernier::cuda
