// Which formats of ggml are packed in groups (group_packing.h), and their numbers one by one. Host and device.
#pragma once

#include <cstdint>
#include <type_traits>

#include "backend/cuda/fragment/group_packing.h"
#include "format/format_list.h"

namespace vernier::cuda {

/// How a format is packed. Its numbers: code(block, i) of value i; scale(block, j), bytes 2 j and 2 j + 1 of a chunk's
/// scales of a row, from the block of its columns 32 j; minimum(block), where those are f16; factors(block). A code
/// stands for itself less kCentre.
template <class F>
struct GroupSource {
  static constexpr Packing kPacking = Packing::kNone;
};

/// An f16 in front of 32 codes.
template <class F, Packing kPackedAs, int kCodeCentre>
struct SimpleGroups {
  static constexpr Packing kPacking = kPackedAs;
  static constexpr int kCentre = kCodeCentre;
  VN_HOST_DEVICE static std::uint32_t code(const std::byte* block, int i) {
    return load_code<F, typename F::Interleaved>(block, i);
  }
  VN_HOST_DEVICE static std::uint16_t scale(const std::byte* block, int) { return load_u16(block); }
  VN_HOST_DEVICE static std::uint16_t minimum(const std::byte*) { return 0; }
  VN_HOST_DEVICE static std::uint32_t factors(const std::byte*) { return 0; }
};
template <>
struct GroupSource<Q4_0Format> : SimpleGroups<Q4_0Format, Packing::kGroups4, 8> {};
template <>
struct GroupSource<Q8_0Format> : SimpleGroups<Q8_0Format, Packing::kGroups8, 0> {};
template <>
struct GroupSource<Iq4NlFormat> : SimpleGroups<Iq4NlFormat, Packing::kGroups4Table, 0> {};

/// The same with a minimum or a fifth bit.
template <class F, Packing kPackedAs>
struct AffineGroups {
  static constexpr Packing kPacking = kPackedAs;
  static constexpr int kCentre = F::kCentre;
  VN_HOST_DEVICE static std::uint32_t code(const std::byte* block, int i) {
    const std::uint32_t low = load_u8(block + F::kCodesAt + i % 16) >> (i / 16 * 4) & 0xFU;
    return F::kHasHighBits ? low | (load_u32(block + F::kHighAt) >> i & 1U) << 4 : low;
  }
  VN_HOST_DEVICE static std::uint16_t scale(const std::byte* block, int) { return load_u16(block); }
  VN_HOST_DEVICE static std::uint16_t minimum(const std::byte* block) {
    return F::kHasMinimum ? load_u16(block + 2) : std::uint16_t{0};
  }
  VN_HOST_DEVICE static std::uint32_t factors(const std::byte*) { return 0; }
};
template <>
struct GroupSource<Q4_1Format> : AffineGroups<Q4_1Format, Packing::kGroups4Minimum> {};
template <>
struct GroupSource<Q5_0Format> : AffineGroups<Q5_0Format, Packing::kGroups5> {};
template <>
struct GroupSource<Q5_1Format> : AffineGroups<Q5_1Format, Packing::kGroups5Minimum> {};

/// Blocks of 256 have no f16 minimums.
struct SuperGroups {
  VN_HOST_DEVICE static std::uint16_t minimum(const std::byte*) { return 0; }
};

template <class F, Packing kPackedAs>
struct ScaleMinGroups : SuperGroups {
  static constexpr Packing kPacking = kPackedAs;
  static constexpr int kCentre = 0;
  VN_HOST_DEVICE static std::uint32_t code(const std::byte* block, int i) {
    const std::uint32_t low = load_u8(block + F::kCodesAt + i / 64 * 32 + i % 32) >> (i / 32 % 2 * 4) & 0xFU;
    if constexpr (F::kCodesAt == F::kHighAt) return low;
    return low | (load_u8(block + F::kHighAt + i % 32) >> (i / 32) & 1U) << 4;
  }
  VN_HOST_DEVICE static std::uint16_t scale(const std::byte* block, int j) {
    return static_cast<std::uint16_t>(F::sub_scale(block + 4, j) | F::sub_minimum(block + 4, j) << 8);
  }
  VN_HOST_DEVICE static std::uint32_t factors(const std::byte* block) { return load_u32(block); }
};
template <>
struct GroupSource<Q4_KFormat> : ScaleMinGroups<Q4_KFormat, Packing::kGroups4Super> {};
template <>
struct GroupSource<Q5_KFormat> : ScaleMinGroups<Q5_KFormat, Packing::kGroups5Super> {};

template <>
struct GroupSource<Iq4XsFormat> : SuperGroups {
  static constexpr Packing kPacking = Packing::kGroups4TableSuper;
  static constexpr int kCentre = 0;
  VN_HOST_DEVICE static std::uint32_t code(const std::byte* block, int i) {
    return load_u8(block + 8 + i / 32 * 16 + i % 16) >> (i % 32 / 16 * 4) & 0xFU;
  }
  VN_HOST_DEVICE static std::uint16_t scale(const std::byte* block, int j) {
    return static_cast<std::uint8_t>(Iq4XsFormat::sub_scale(block, j));
  }
  VN_HOST_DEVICE static std::uint32_t factors(const std::byte* block) { return load_u16(block); }
};

/// Two bits of each value i, 128 values in 32 bytes.
VN_HOST_DEVICE inline std::uint32_t two_bits(const std::byte* codes, int i) {
  return load_u8(codes + i / 128 * 32 + i % 32) >> (i % 128 / 32 * 2) & 3U;
}

template <>
struct GroupSource<Q2_KFormat> : SuperGroups {
  static constexpr Packing kPacking = Packing::kGroups2Super;
  static constexpr int kCentre = 0;
  VN_HOST_DEVICE static std::uint32_t code(const std::byte* block, int i) { return two_bits(block + 16, i); }
  VN_HOST_DEVICE static std::uint16_t scale(const std::byte* block, int j) { return load_u16(block + 2 * j); }
  VN_HOST_DEVICE static std::uint32_t factors(const std::byte* block) { return load_u32(block + 80); }
};

template <>
struct GroupSource<Q3_KFormat> : SuperGroups {
  static constexpr Packing kPacking = Packing::kGroups3Super;
  static constexpr int kCentre = 4;
  VN_HOST_DEVICE static std::uint32_t code(const std::byte* block, int i) {
    return two_bits(block + 32, i) | (load_u8(block + i % 32) >> (i / 32) & 1U) << 2;
  }
  VN_HOST_DEVICE static std::uint16_t scale(const std::byte* block, int j) {
    const auto sub_scale = [&](int sub) { return static_cast<std::uint8_t>(Q3_KFormat::sub_scale(block + 96, sub)); };
    return static_cast<std::uint16_t>(sub_scale(2 * j) | sub_scale(2 * j + 1) << 8);
  }
  VN_HOST_DEVICE static std::uint32_t factors(const std::byte* block) { return load_u16(block + 108); }
};

template <>
struct GroupSource<Q6_KFormat> : SuperGroups {
  static constexpr Packing kPacking = Packing::kGroups6Super;
  static constexpr int kCentre = 32;
  VN_HOST_DEVICE static std::uint32_t code(const std::byte* block, int i) {
    const int part = i / 32;  // as Q6_KFormat::decode_block() has it
    const std::byte* low = block + part / 4 * 64 + part % 2 * 32 + i % 32;
    const std::byte* high = block + 128 + part / 4 * 32 + i % 32;
    return (load_u8(low) >> (part % 4 / 2 * 4) & 0xFU) | (load_u8(high) >> (part % 4 * 2) & 3U) << 4;
  }
  VN_HOST_DEVICE static std::uint16_t scale(const std::byte* block, int j) { return load_u16(block + 192 + 2 * j); }
  VN_HOST_DEVICE static std::uint32_t factors(const std::byte* block) { return load_u16(block + 208); }
};

/// A chunk's rows as published, and how much of it there is.
struct ChunkSource {
  const std::byte* codes;
  std::int64_t row_stride;
  std::int64_t rows;
  std::int64_t cols;

  template <class F>
  [[nodiscard]] VN_HOST_DEVICE const std::byte* block(int row, int col) const {
    return codes + row * row_stride + col / F::kBlockValues * F::kBlockBytes;
  }
  [[nodiscard]] VN_HOST_DEVICE bool has(int row, int col) const { return row < rows && col < cols; }
};

/// Word `word` of a chunk's codes: whichever of its places have their bits in it.
template <class F>
VN_HOST_DEVICE std::uint32_t packed_code_word(const ChunkSource& from, int word) {
  using Source = GroupSource<F>;
  constexpr GroupShape kShape = group_shape(Source::kPacking);
  std::uint32_t bits = 0;
  const int lane = word % kPieceWords / 4;
  const int piece = word / kPieceWords;
  const bool of_ones = kShape.ones() > 0 && piece == kShape.code_pieces() - 1;
  const bool of_twos = kShape.twos() > 0 && piece >= kShape.fours() && !of_ones;
  for (int unit = 0; unit < kChunkUnits; ++unit) {
    for (int row = lane / 4; row < kTileRows; row += 8) {
      for (int col = 0; col < kUnitCols; ++col) {
        const UnitPlace at = group_place(kShape, row, col);
        if (at.lane != lane) continue;
        const BitPlace to = of_ones   ? place_of_one(kShape, unit, at)
                            : of_twos ? place_of_two(kShape, unit, at)
                                      : place_of_four(kShape, unit, at);
        const int k = unit * kUnitCols + col;
        if (to.word != word || !from.has(row, k)) continue;
        const std::uint32_t code = Source::code(from.block<F>(row, k), k % F::kBlockValues);
        const std::uint32_t part = of_ones            ? code >> (kShape.bits - 1)
                                   : of_twos          ? code >> (kShape.fours() > 0 ? 4 : 0) & 3U
                                   : kShape.bits == 8 ? code
                                                      : code & 0xFU;
        bits |= part << to.shift;
      }
    }
  }
  return bits;
}

/// Word `word` of a chunk's memory. Rows beyond the weight, and columns, are zeros.
template <class F>
VN_HOST_DEVICE std::uint32_t packed_chunk_word(const ChunkSource& from, int word) {
  using Source = GroupSource<F>;
  constexpr GroupShape kShape = group_shape(Source::kPacking);
  const int byte = word * 4;
  if (byte < kShape.scales_at()) return packed_code_word<F>(from, word);
  if (byte >= kShape.factors_at()) {
    const int row = (byte - kShape.factors_at()) / 4;
    return row < from.rows ? Source::factors(from.block<F>(row, 0)) : 0;
  }
  const bool is_minimum = byte >= kShape.minimums_at();
  const int row = (byte - kShape.scales_at()) / 16 % kTileRows;
  std::uint32_t bits = 0;
  for (int i = 0; i < 2; ++i) {
    const int j = byte % 16 / 2 + i;
    if (!from.has(row, j * 32)) continue;
    const std::byte* block = from.block<F>(row, j * 32);
    const std::uint16_t half = is_minimum ? Source::minimum(block) : Source::scale(block, j);
    bits |= static_cast<std::uint32_t>(half) << (16 * i);
  }
  return bits;
}

}  // namespace vernier::cuda
