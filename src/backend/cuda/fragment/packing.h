// The order of bytes in which tensor-core kernels like weights: reversible, nothing is converted but the exponent of
// E4M3 block scales, which loses nothing either. Host and device.
//
// A tile is 16 rows; a unit is 16 rows x 64 columns; four units are a chunk. Unit u of tile T lies at
// (T * units + u) * unit_bytes. In a unit, lane 4 g + t owns rows g and g + 8 and columns 16 t .. 16 t + 15: four
// fragments of m16n8k16, fragment i with columns 16 t + 4 i + {0, 1} and {2, 3}. A lane's bytes come in pieces of 16,
// piece p of all lanes together, so that a warp loads 512 consecutive bytes.
//
//   4-bit codes   1 piece   word i = fragment i. In each 16-bit half (low: the even columns) four codes, sign and
//                           magnitude apart so that one or two instructions make bf16 numbers of them:
//                             bit  15 | 14 | 13 | 12 | 11..9 | 8..6 | 5..3 | 2..0       a0, a1: rows g, g + 8 of the
//                             of   a0   a2   a3   a1    a3      a0     a1     a2        first columns; a2, a3: second
//   8-bit codes   2 pieces  words (fragment 2p: row g, g + 8; fragment 2p + 1: row g, g + 8), bytes: columns 0, 2, 1, 3
//   16 bits       4 pieces  piece p = fragment p as it is
//   32 bits       8 pieces  piece 2p: a0 and a1 of fragment p, the low half's number first; piece 2p + 1: a2 and a3
//
// Block scales of 4-bit codes: 8 bytes a lane (or, with 32 columns a block, for each two lanes) and chunk: for each
// unit those of rows g and g + 8.
#pragma once

#include <cstdint>

#include "format/block_format.h"
#include "tensor/weight.h"

namespace vernier::cuda {

/// How a weight lies in device memory.
enum class Packing : std::uint8_t {
  kNone,        ///< as published
  kE2M1ByE4M3,  ///< 4-bit codes, an E4M3 scale for 16 columns
  kE2M1ByE8M0,  ///< 4-bit codes, a power of two for 32 columns
  kE4M3,        ///< 8-bit codes without block scales
  kE4M3ByGrid,  ///< the same, with scales for tiles of 128 columns; the grid is [rows, cols] of fp32 as it was
  kBF16,
  // Integer codes in groups that share a scale and perhaps a minimum, applied to sums of a group: group_packing.h.
  kGroups4,            ///< 4 bits, f16 scales of 32 columns
  kGroups4Minimum,     ///< the same and f16 minimums
  kGroups4Super,       ///< 4 bits, integer scales and minimums of 32 columns under two f16 of 256
  kGroups4Table,       ///< 4 bits that choose one of 16 integers, f16 scales of 32 columns
  kGroups4TableSuper,  ///< the same, integer scales of 32 columns under an f16 of 256
  kGroups5,            ///< 5 bits as 4
  kGroups5Minimum,
  kGroups5Super,
  kGroups8,       ///< 8 bits, f16 scales of 32 columns
  kGroups2Super,  ///< 2 bits, integer scales and minimums of 16 columns under two f16 of 256
  kGroups3Super,  ///< 3 bits, integer scales of 16 columns under an f16 of 256
  kGroups6Super,  ///< the same with 6 bits
  kF16,           ///< each the sum of two bf16 numbers
  kF32,           ///< each the sum of three bf16 numbers
};

constexpr int kTileRows = 16;
constexpr int kUnitCols = 64;
constexpr int kChunkUnits = 4;
constexpr int kChunkCols = kUnitCols * kChunkUnits;
constexpr int kGridCols = 128;    ///< under one scale, where packed weights have a grid
constexpr int kPieceBytes = 512;  ///< 16 of each lane

VN_HOST_DEVICE constexpr int code_bits(Packing packing) {
  if (packing == Packing::kE2M1ByE4M3 || packing == Packing::kE2M1ByE8M0) return 4;
  if (packing == Packing::kF32) return 32;
  return packing == Packing::kBF16 || packing == Packing::kF16 ? 16 : 8;
}
VN_HOST_DEVICE constexpr int pieces_per_unit(Packing packing) { return code_bits(packing) / 4; }
VN_HOST_DEVICE constexpr int unit_bytes(Packing packing) { return pieces_per_unit(packing) * kPieceBytes; }
/// Columns of a block scale of 4-bit codes; 0 elsewhere.
VN_HOST_DEVICE constexpr int scale_cols(Packing packing) {
  return packing == Packing::kE2M1ByE4M3 ? 16 : packing == Packing::kE2M1ByE8M0 ? 32 : 0;
}
/// Bytes of a tile's scales in one chunk.
VN_HOST_DEVICE constexpr int chunk_scale_bytes(Packing packing) {
  return scale_cols(packing) == 0 ? 0 : kTileRows * kChunkCols / scale_cols(packing);
}

/// The lane, fragment and place in it that hold a value of a unit.
struct UnitPlace {
  int lane;
  int fragment;
  int register_index;  ///< a0 .. a3
  int half;            ///< 0: low
};
VN_HOST_DEVICE constexpr UnitPlace unit_place(int row, int col) {
  return {row % 8 * 4 + col / 16, col % 16 / 4, col % 4 / 2 * 2 + row / 8, col % 2};
}
VN_HOST_DEVICE constexpr int place_row(const UnitPlace& at) { return at.lane / 4 + at.register_index % 2 * 8; }
VN_HOST_DEVICE constexpr int place_col(const UnitPlace& at) {
  return at.lane % 4 * 16 + at.fragment * 4 + at.register_index / 2 * 2 + at.half;
}

namespace packing_detail {

/// Bits of a 16-bit half in which the 4-bit code of register a0 .. a3 has its sign, and its magnitude's lowest bit.
VN_HOST_DEVICE constexpr int sign_bit(int register_index) {
  return register_index == 0 ? 15 : register_index == 1 ? 12 : register_index == 2 ? 14 : 13;
}
VN_HOST_DEVICE constexpr int magnitude_bit(int register_index) {
  return register_index == 0 ? 6 : register_index == 1 ? 3 : register_index == 2 ? 0 : 9;
}

/// The 32-bit word of a unit that holds a place, counted from the unit's beginning, and the place's lowest bit in it.
VN_HOST_DEVICE constexpr int word_of(Packing packing, const UnitPlace& at) {
  switch (code_bits(packing)) {
    case 4: return at.lane * 4 + at.fragment;
    case 8: return at.fragment / 2 * 128 + at.lane * 4 + at.fragment % 2 * 2 + at.register_index % 2;
    case 32: return at.fragment * 256 + at.register_index / 2 * 128 + at.lane * 4 + at.register_index % 2 * 2 + at.half;
    default: return at.fragment * 128 + at.lane * 4 + at.register_index;
  }
}
VN_HOST_DEVICE constexpr int byte_shift(const UnitPlace& at) { return at.half * 16 + at.register_index / 2 * 8; }

}  // namespace packing_detail

/// Word `word` of a unit, from codes that get(row, col) of the unit gives.
template <class Get>
VN_HOST_DEVICE std::uint32_t pack_word(Packing packing, int word, Get get) {
  using packing_detail::byte_shift;
  using packing_detail::magnitude_bit;
  using packing_detail::sign_bit;
  std::uint32_t bits = 0;
  const int lane = word % 128 / 4;
  if (code_bits(packing) == 4) {
    for (int i = 0; i < 8; ++i) {
      const UnitPlace at = {lane, word % 4, i / 2, i % 2};
      const std::uint32_t code = get(place_row(at), place_col(at));
      bits |= (code >> 3 & 1U) << (sign_bit(i / 2) + 16 * (i % 2));
      bits |= (code & 7U) << (magnitude_bit(i / 2) + 16 * (i % 2));
    }
  } else if (code_bits(packing) == 8) {
    for (int i = 0; i < 4; ++i) {
      const UnitPlace at = {lane, word / 128 * 2 + word % 4 / 2, i / 2 * 2 + word % 2, i % 2};
      bits |= static_cast<std::uint32_t>(get(place_row(at), place_col(at))) << byte_shift(at);
    }
  } else if (code_bits(packing) == 32) {
    const UnitPlace at = {lane, word / 256, word / 128 % 2 * 2 + word % 4 / 2, word % 2};
    bits = get(place_row(at), place_col(at));
  } else {
    for (int half = 0; half < 2; ++half) {
      const UnitPlace at = {lane, word / 128, word % 4, half};
      bits |= static_cast<std::uint32_t>(get(place_row(at), place_col(at))) << (16 * half);
    }
  }
  return bits;
}

/// The code at a row and column of a unit.
VN_HOST_DEVICE inline std::uint32_t unpack_code(Packing packing, const std::uint32_t* unit, int row, int col) {
  using packing_detail::byte_shift;
  using packing_detail::magnitude_bit;
  using packing_detail::sign_bit;
  const UnitPlace at = unit_place(row, col);
  const std::uint32_t word = unit[packing_detail::word_of(packing, at)];
  if (code_bits(packing) == 4) {
    const std::uint32_t sign = word >> (sign_bit(at.register_index) + 16 * at.half) & 1U;
    return sign << 3 | (word >> (magnitude_bit(at.register_index) + 16 * at.half) & 7U);
  }
  if (code_bits(packing) == 8) return word >> byte_shift(at) & 0xFFU;
  if (code_bits(packing) == 32) return word;
  return word >> (16 * at.half) & 0xFFFFU;
}

/// Where the scale of a tile's row and of a block's columns lies among the scales of its chunk.
VN_HOST_DEVICE constexpr int scale_place(Packing packing, int row, int block) {
  const int blocks_per_unit = kUnitCols / scale_cols(packing);
  const int slot = row % 8 * blocks_per_unit + block % blocks_per_unit;
  return slot * 8 + block / blocks_per_unit * 2 + row / 8;
}

/// E4M3 block scales with a wider exponent, so that bf16 bits are 16 * packed + kScaleBias and never subnormal; the
/// value is 2^118 times the scale. The sign bit, which no legal scale has set, pays for it.
constexpr std::uint32_t kScaleBias = 0x7600;
constexpr std::uint8_t kPackedZero = 0xA0;  ///< becomes -0
VN_HOST_DEVICE constexpr bool can_pack_scale(std::uint8_t code) { return code <= 0x7F || code == 0xFF; }
VN_HOST_DEVICE constexpr std::uint8_t pack_scale(std::uint8_t code) {
  if (code == 0) return kPackedZero;
  if (code == 0x7F) return 0x9C;  // NaN
  if (code == 0xFF) return 0x9D;
  if (code >= 8) return static_cast<std::uint8_t>(code + 16);
  int shift = 0;  // a subnormal: its leading one becomes implicit
  while ((code << shift) < 8) ++shift;
  return static_cast<std::uint8_t>((3 - shift) * 8 + (code << shift) - 8);
}
VN_HOST_DEVICE constexpr std::uint8_t unpack_scale(std::uint8_t packed) {
  if (packed == kPackedZero) return 0;
  if (packed == 0x9C) return 0x7F;
  if (packed == 0x9D) return 0xFF;
  if (packed >= 24) return static_cast<std::uint8_t>(packed - 16);
  return static_cast<std::uint8_t>((packed % 8 + 8) >> (3 - packed / 8));
}

/// A weight's extents when packed. (Sizes: of packings without groups; group_packing.h has the others.)
struct PackedShape {
  Packing packing = Packing::kNone;
  std::int64_t tiles = 0;
  std::int64_t units = 0;
  std::int64_t chunks = 0;
  [[nodiscard]] VN_HOST_DEVICE constexpr std::int64_t code_bytes() const { return tiles * units * unit_bytes(packing); }
  [[nodiscard]] VN_HOST_DEVICE constexpr std::int64_t scale_bytes() const {
    return tiles * chunks * chunk_scale_bytes(packing);
  }
};
VN_HOST_DEVICE constexpr PackedShape packed_shape(Packing packing, std::int64_t rows, std::int64_t cols) {
  return {packing, (rows + kTileRows - 1) / kTileRows, (cols + kUnitCols - 1) / kUnitCols,
          (cols + kChunkCols - 1) / kChunkCols};
}

}  // namespace vernier::cuda
