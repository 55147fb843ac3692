// Packing of ggml's blocks of integer codes: the tiles, units and chunks of packing.h, with columns dealt to lanes so
// that a fragment never leaves a group of columns with one scale. Host and device; reversible.
//
// Columns of a unit, fragment f of lane 4 g + t: groups of 32: 32 (f / 2) + 8 t + 4 (f % 2) + {0, 1} and {2, 3};
// groups of 16: 16 f + 4 t + {0, 1} and {2, 3}.
//
// A chunk of a tile (one block of 256 in the formats with two levels of scales) is one piece of memory:
//   low bits   4 pieces, one a unit: word f of a lane = fragment f: register r's codes at bits 4 r (low half of the
//              fragment's word) and 16 + 4 r (high half)
//   fifth bit  1 piece: word u of a lane = unit u: bits 4 f + r and 16 + 4 f + r
//   5th, 6th   2 pieces: word u % 2 * 2 + f / 2 of piece u / 2: bits 8 (f % 2) + 2 r and 16 + 8 (f % 2) + 2 r
//   8 bits     8 pieces, two a unit, as packing.h has 8-bit codes
//   scales     16 bytes a row: eight f16; or eight pairs of bytes (scale, minimum); or sixteen bytes (scale)
//   factors    4 bytes a row where there are two levels: f16 of the scales, f16 of the minimums (or 0)
#pragma once

#include <cstdint>
#include <type_traits>

#include "backend/cuda/fragment/packing.h"
#include "format/format_list.h"

namespace vernier::cuda {

constexpr int kPieceWords = kPieceBytes / 4;

/// What a packing of groups is made of.
struct GroupShape {
  int bits = 0;  ///< of a code; 0: no packing of groups
  int group_cols = 32;
  bool has_factors = false;
  bool has_minimum = false;

  [[nodiscard]] VN_HOST_DEVICE constexpr int high_pieces() const { return bits == 5 ? 1 : bits == 6 ? 2 : 0; }
  [[nodiscard]] VN_HOST_DEVICE constexpr int code_pieces() const { return bits == 8 ? 8 : 4 + high_pieces(); }
  [[nodiscard]] VN_HOST_DEVICE constexpr int scales_at() const { return code_pieces() * kPieceBytes; }
  [[nodiscard]] VN_HOST_DEVICE constexpr int factors_at() const { return scales_at() + kTileRows * 16; }
  [[nodiscard]] VN_HOST_DEVICE constexpr int chunk_bytes() const {
    return factors_at() + (has_factors ? kTileRows * 4 : 0);
  }
};

VN_HOST_DEVICE constexpr GroupShape group_shape(Packing packing) {
  switch (packing) {
    case Packing::kGroups4: return {4, 32, false, false};
    case Packing::kGroups4Super: return {4, 32, true, true};
    case Packing::kGroups5Super: return {5, 32, true, true};
    case Packing::kGroups6Super: return {6, 16, true, false};
    case Packing::kGroups8: return {8, 32, false, false};
    default: return {};
  }
}
VN_HOST_DEVICE constexpr bool has_groups(Packing packing) { return group_shape(packing).bits != 0; }

/// The place of a unit's value, as unit_place() where columns are dealt by groups.
VN_HOST_DEVICE constexpr UnitPlace group_place(const GroupShape& shape, int row, int col) {
  const int register_index = col % 4 / 2 * 2 + row / 8;
  if (shape.group_cols == 16) return {row % 8 * 4 + col % 16 / 4, col / 16, register_index, col % 2};
  return {row % 8 * 4 + col % 32 / 8, col / 32 * 2 + col % 8 / 4, register_index, col % 2};
}

/// Where the bits of a place lie in a chunk: words counted from its beginning.
struct BitPlace {
  int word = 0;
  int shift = 0;
};
VN_HOST_DEVICE constexpr BitPlace low_bits(const GroupShape& shape, int unit, const UnitPlace& at) {
  if (shape.bits == 8) {
    const int piece = unit * 2 + at.fragment / 2;
    return {piece * kPieceWords + at.lane * 4 + at.fragment % 2 * 2 + at.register_index % 2,
            packing_detail::byte_shift(at)};
  }
  return {unit * kPieceWords + at.lane * 4 + at.fragment, 16 * at.half + 4 * at.register_index};
}
VN_HOST_DEVICE constexpr BitPlace high_bits(const GroupShape& shape, int unit, const UnitPlace& at) {
  if (shape.bits == 5)
    return {4 * kPieceWords + at.lane * 4 + unit, 16 * at.half + 4 * at.fragment + at.register_index};
  return {(4 + unit / 2) * kPieceWords + at.lane * 4 + unit % 2 * 2 + at.fragment / 2,
          16 * at.half + 8 * (at.fragment % 2) + 2 * at.register_index};
}

/// The code at a row and column of a chunk.
VN_HOST_DEVICE inline std::uint32_t unpack_group_code(const GroupShape& shape, const std::uint32_t* chunk, int row,
                                                      int col) {
  const int unit = col / kUnitCols;
  const UnitPlace at = group_place(shape, row, col % kUnitCols);
  const BitPlace low = low_bits(shape, unit, at);
  const std::uint32_t code = chunk[low.word] >> low.shift & (shape.bits == 8 ? 0xFFU : 0xFU);
  if (shape.high_pieces() == 0) return code;
  const BitPlace high = high_bits(shape, unit, at);
  return code | (chunk[high.word] >> high.shift & (shape.bits == 5 ? 1U : 3U)) << 4;
}

// --- the formats -----------------------------------------------------------------------------------------------------

/// How a format of ggml is packed in groups, and its numbers one by one.
template <class F>
struct GroupSource {
  static constexpr Packing kPacking = Packing::kNone;
};

/// Codes that stand for themselves less a centre, an f16 in front of 32.
template <class F, Packing kPackedAs>
struct SimpleGroups {
  static constexpr Packing kPacking = kPackedAs;
  VN_HOST_DEVICE static std::uint32_t code(const std::byte* block, int i) {
    return load_code<F, typename F::Interleaved>(block, i);
  }
  /// Bytes 2 j and 2 j + 1 of a chunk's scales of a row, from the block of its columns 32 j.
  VN_HOST_DEVICE static std::uint16_t scale(const std::byte* block, int) { return load_u16(block); }
  VN_HOST_DEVICE static std::uint32_t factors(const std::byte*) { return 0; }
};
template <>
struct GroupSource<Q4_0Format> : SimpleGroups<Q4_0Format, Packing::kGroups4> {
  static constexpr int kCentre = 8;
};
template <>
struct GroupSource<Q8_0Format> : SimpleGroups<Q8_0Format, Packing::kGroups8> {
  static constexpr int kCentre = 0;
};

template <class F, Packing kPackedAs>
struct ScaleMinGroups {
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
struct GroupSource<Q6_KFormat> {
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

/// Word `word` of a chunk's memory. Rows beyond the weight, and columns, are zeros.
template <class F>
VN_HOST_DEVICE std::uint32_t packed_chunk_word(const std::byte* codes, std::int64_t row_stride, std::int64_t rows,
                                               std::int64_t cols, int word) {
  using Source = GroupSource<F>;
  constexpr GroupShape kShape = group_shape(Source::kPacking);
  const auto block_at = [&](int row, int col) {
    return codes + row * row_stride + col / F::kBlockValues * F::kBlockBytes;
  };
  const int byte = word * 4;
  if (byte >= kShape.factors_at()) {
    const int row = (byte - kShape.factors_at()) / 4;
    return row < rows ? Source::factors(block_at(row, 0)) : 0;
  }
  if (byte >= kShape.scales_at()) {
    const int row = (byte - kShape.scales_at()) / 16;
    std::uint32_t bits = 0;
    for (int i = 0; i < 2; ++i) {
      const int j = byte % 16 / 2 + i;
      if (row < rows && j * 32 < cols) {
        bits |= static_cast<std::uint32_t>(Source::scale(block_at(row, j * 32), j)) << (16 * i);
      }
    }
    return bits;
  }
  // Of the codes: whichever of the word's places have their bits in it.
  std::uint32_t bits = 0;
  const int lane = word % kPieceWords / 4;
  const int piece = word / kPieceWords;
  const bool is_high = kShape.bits != 8 && piece >= 4;
  for (int unit = 0; unit < kChunkUnits; ++unit) {
    for (int row = lane / 4; row < kTileRows; row += 8) {
      for (int col = 0; col < kUnitCols; ++col) {
        const UnitPlace at = group_place(kShape, row, col);
        if (at.lane != lane) continue;
        const BitPlace to = is_high ? high_bits(kShape, unit, at) : low_bits(kShape, unit, at);
        const int k = unit * kUnitCols + col;
        if (to.word != word || row >= rows || k >= cols) continue;
        const std::uint32_t code = Source::code(block_at(row, k), k % F::kBlockValues);
        const std::uint32_t part = is_high ? code >> 4 : kShape.bits == 8 ? code : code & 0xFU;
        bits |= part << to.shift;
      }
    }
  }
  return bits;
}

}  // namespace vernier::cuda
