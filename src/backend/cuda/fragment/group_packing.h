// Packing of ggml's blocks of integer codes: the tiles, units and chunks of packing.h, with columns dealt to lanes so
// that a fragment never leaves a group of columns with one scale. Host and device; reversible. group_source.h has the
// formats that are packed so.
//
// Columns of a unit, fragment f of lane 4 g + t: groups of 32: 32 (f / 2) + 8 t + 4 (f % 2) + {0, 1} and {2, 3};
// groups of 16: 16 f + 4 t + {0, 1} and {2, 3}.
//
// A chunk of a tile (one block of 256 in the formats with two levels of scales) is one piece of memory. Codes lie in
// planes of four, two and one bits, those that the format has, from the lowest bits on (3 bits: two and one):
//   4 bits     4 pieces, one a unit: word f of a lane = fragment f: register r's codes at bits 4 r (low half of the
//              fragment's word) and 16 + 4 r (high half)
//   2 bits     2 pieces: word u % 2 * 2 + f / 2 of piece u / 2: bits 8 (f % 2) + 2 r and 16 + 8 (f % 2) + 2 r
//   1 bit      1 piece: word u of a lane = unit u: bits 4 f + r and 16 + 4 f + r
//   8 bits     instead of these 8 pieces, two a unit, as packing.h has 8-bit codes
//   scales     16 bytes a row, see GroupScales
//   minimums   16 bytes a row: eight f16, where scales are f16
//   factors    4 bytes a row where there are two levels: f16 of the scales, f16 of the minimums (or 0)
#pragma once

#include <cstdint>

#include "backend/cuda/fragment/packing.h"

namespace vernier::cuda {

constexpr int kPieceWords = kPieceBytes / 4;

/// What a row's 16 bytes of scales in a chunk are.
enum class GroupScales : std::uint8_t {
  kHalves,   ///< eight f16
  kPairs,    ///< eight pairs of bytes: signed scale, minimum
  kBytes,    ///< sixteen signed bytes
  kNibbles,  ///< sixteen bytes: scale in the low four bits, minimum in the others
};

/// What a packing of groups is made of.
struct GroupShape {
  int bits = 0;  ///< of a code; 0: no packing of groups
  GroupScales scales = GroupScales::kHalves;
  bool has_minimum = false;
  bool has_table = false;  ///< codes choose a value of Iq4Codec

  [[nodiscard]] VN_HOST_DEVICE constexpr int group_cols() const {
    return scales == GroupScales::kBytes || scales == GroupScales::kNibbles ? 16 : 32;
  }
  [[nodiscard]] VN_HOST_DEVICE constexpr bool has_factors() const { return scales != GroupScales::kHalves; }
  /// Pieces of the planes.
  [[nodiscard]] VN_HOST_DEVICE constexpr int fours() const { return bits >= 4 && bits <= 6 ? 4 : 0; }
  [[nodiscard]] VN_HOST_DEVICE constexpr int twos() const { return bits == 6 || bits == 2 || bits == 3 ? 2 : 0; }
  [[nodiscard]] VN_HOST_DEVICE constexpr int ones() const { return bits == 5 || bits == 3 ? 1 : 0; }
  [[nodiscard]] VN_HOST_DEVICE constexpr int code_pieces() const { return bits == 8 ? 8 : fours() + twos() + ones(); }
  /// Where parts of a chunk begin: bytes.
  [[nodiscard]] VN_HOST_DEVICE constexpr int scales_at() const { return code_pieces() * kPieceBytes; }
  [[nodiscard]] VN_HOST_DEVICE constexpr int minimums_at() const { return scales_at() + kTileRows * 16; }
  [[nodiscard]] VN_HOST_DEVICE constexpr int factors_at() const {
    return minimums_at() + (has_minimum && !has_factors() ? kTileRows * 16 : 0);
  }
  [[nodiscard]] VN_HOST_DEVICE constexpr int chunk_bytes() const {
    return factors_at() + (has_factors() ? kTileRows * 4 : 0);
  }
};

VN_HOST_DEVICE constexpr GroupShape group_shape(Packing packing) {
  using enum GroupScales;
  switch (packing) {
    case Packing::kGroups4: return {4, kHalves};
    case Packing::kGroups4Minimum: return {4, kHalves, true};
    case Packing::kGroups4Super: return {4, kPairs, true};
    case Packing::kGroups4Table: return {4, kHalves, false, true};
    case Packing::kGroups4TableSuper: return {4, kPairs, false, true};
    case Packing::kGroups5: return {5, kHalves};
    case Packing::kGroups5Minimum: return {5, kHalves, true};
    case Packing::kGroups5Super: return {5, kPairs, true};
    case Packing::kGroups8: return {8, kHalves};
    case Packing::kGroups2Super: return {2, kNibbles, true};
    case Packing::kGroups3Super: return {3, kBytes};
    case Packing::kGroups6Super: return {6, kBytes};
    default: return {};
  }
}
VN_HOST_DEVICE constexpr bool has_groups(Packing packing) { return group_shape(packing).bits != 0; }

/// The place of a unit's value, as unit_place() where columns are dealt by groups.
VN_HOST_DEVICE constexpr UnitPlace group_place(const GroupShape& shape, int row, int col) {
  const int register_index = col % 4 / 2 * 2 + row / 8;
  if (shape.group_cols() == 16) return {row % 8 * 4 + col % 16 / 4, col / 16, register_index, col % 2};
  return {row % 8 * 4 + col % 32 / 8, col / 32 * 2 + col % 8 / 4, register_index, col % 2};
}

/// Where the bits of a place lie in a chunk: words counted from its beginning.
struct BitPlace {
  int word = 0;
  int shift = 0;
};
/// In the plane of four bits; or 8-bit codes.
VN_HOST_DEVICE constexpr BitPlace place_of_four(const GroupShape& shape, int unit, const UnitPlace& at) {
  if (shape.bits == 8) {
    const int piece = unit * 2 + at.fragment / 2;
    return {piece * kPieceWords + at.lane * 4 + at.fragment % 2 * 2 + at.register_index % 2,
            packing_detail::byte_shift(at)};
  }
  return {unit * kPieceWords + at.lane * 4 + at.fragment, 16 * at.half + 4 * at.register_index};
}
VN_HOST_DEVICE constexpr BitPlace place_of_two(const GroupShape& shape, int unit, const UnitPlace& at) {
  return {(shape.fours() + unit / 2) * kPieceWords + at.lane * 4 + unit % 2 * 2 + at.fragment / 2,
          16 * at.half + 8 * (at.fragment % 2) + 2 * at.register_index};
}
VN_HOST_DEVICE constexpr BitPlace place_of_one(const GroupShape& shape, int unit, const UnitPlace& at) {
  return {(shape.fours() + shape.twos()) * kPieceWords + at.lane * 4 + unit,
          16 * at.half + 4 * at.fragment + at.register_index};
}

/// The code at a row and column of a chunk.
VN_HOST_DEVICE inline std::uint32_t unpack_group_code(const GroupShape& shape, const std::uint32_t* chunk, int row,
                                                      int col) {
  const int unit = col / kUnitCols;
  const UnitPlace at = group_place(shape, row, col % kUnitCols);
  const auto bits_at = [&](const BitPlace& place) { return chunk[place.word] >> place.shift; };
  if (shape.bits == 8) return bits_at(place_of_four(shape, unit, at)) & 0xFFU;
  std::uint32_t code = 0;
  int known = 0;
  if (shape.fours() > 0) {
    code = bits_at(place_of_four(shape, unit, at)) & 0xFU;
    known = 4;
  }
  if (shape.twos() > 0) {
    code |= (bits_at(place_of_two(shape, unit, at)) & 3U) << known;
    known += 2;
  }
  if (shape.ones() > 0) code |= (bits_at(place_of_one(shape, unit, at)) & 1U) << known;
  return code;
}

// --- sums of the input -----------------------------------------------------------------------------------------------
// Minimums multiply the sum of a group's input. Those sums are made where input is rounded, and lie behind a row's
// columns: for each chunk three bf16 terms of every group's sum.

/// bf16 numbers of a chunk.
VN_HOST_DEVICE constexpr int sums_of_chunk(const GroupShape& shape) {
  return shape.has_minimum ? 3 * kChunkCols / shape.group_cols() : 0;
}
/// Columns whose groups have sums, where a row has `padded`: those of whole chunks.
VN_HOST_DEVICE constexpr int columns_with_sums(const GroupShape& shape, int padded) {
  return shape.has_minimum ? (padded + kChunkCols - 1) / kChunkCols * kChunkCols : padded;
}
/// Where a term of a group's sum lies among its chunk's: so that lane 4 g + t reads pairs of the groups whose minimums
/// lie in word t of a row's.
VN_HOST_DEVICE constexpr int sum_place(const GroupShape& shape, int group, int term) {
  if (shape.group_cols() == 16) return term * 16 + group / 4 * 4 + group % 2 * 2 + group % 4 / 2;
  return term * 8 + group;
}
/// bf16 numbers of a rounded row of input for a packing, sums included.
VN_HOST_DEVICE constexpr std::int64_t input_stride(Packing packing, std::int64_t units) {
  const std::int64_t chunks = (units + kChunkUnits - 1) / kChunkUnits;
  return units * kUnitCols + chunks * sums_of_chunk(group_shape(packing));
}

}  // namespace vernier::cuda
