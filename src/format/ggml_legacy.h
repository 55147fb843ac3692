// The 32-value block types of ggml: an F16 scale (and minimum) in front of 4-, 5- or 8-bit integer codes.
//
//          byte 0   2      4        8                 code of value j (0..15)          value
//   q4_0   | d16 | codes[16]                 |  18    nibble                           d * (code - 8)
//   q4_1   | d16 | m16 | codes[16]           |  20    nibble                           d * code + m
//   q5_0   | d16 | high u32 | codes[16]      |  22    nibble | bit j of high << 4      d * (code - 16)
//   q5_1   | d16 | m16 | high u32 | codes[16]|  24    nibble | bit j of high << 4      d * code + m
//   q8_0   | d16 | codes[32]                 |  34    signed byte                      d * code
//
// Nibbles are in halves: byte j holds value j (low) and value j + 16 (high); bit i of `high` belongs to value i.
// Formulas and their order of rounding are ggml's; d and m may be negative, zero or subnormal.
#pragma once

#include "format/block_format.h"

namespace vernier {

/// A 4-bit code minus 8.
struct Nibble8Codec {
  using Code = std::uint8_t;
  static constexpr int kBits = 4;
  static constexpr float kMax = 8.0f;
  VN_HOST_DEVICE static constexpr float decode(Code code) { return static_cast<float>((code & 0xF) - 8); }
  VN_HOST_DEVICE static constexpr bool is_finite(Code) { return true; }
};

/// A signed byte.
struct Int8Codec {
  using Code = std::uint8_t;
  static constexpr int kBits = 8;
  static constexpr float kMax = 128.0f;
  VN_HOST_DEVICE static constexpr float decode(Code code) { return static_cast<float>(static_cast<std::int8_t>(code)); }
  VN_HOST_DEVICE static constexpr bool is_finite(Code) { return true; }
};

struct Q4_0Format : CodedFormat<Nibble8Codec, F16Codec, 32> {
  static constexpr std::string_view kName = "q4_0";
  static constexpr int kGgufType = 2;
  static constexpr int kBlockValues = 32;
  static constexpr int kBlockBytes = 18;
  static constexpr OuterScaleUse kOuterScale = OuterScaleUse::kNone;
  struct Interleaved : CodeLayout<NibbleOrder::kHalves, /*kScalesOffset=*/0, /*kCodesOffset=*/2> {};

  VN_HOST_DEVICE static constexpr void decode_block(const std::byte* block, float* out) {
    decode_codes<Q4_0Format, Interleaved>(block, block, 0, kBlockValues, out);
  }
};

struct Q8_0Format : CodedFormat<Int8Codec, F16Codec, 32> {
  static constexpr std::string_view kName = "q8_0";
  static constexpr int kGgufType = 8;
  static constexpr int kBlockValues = 32;
  static constexpr int kBlockBytes = 34;
  static constexpr OuterScaleUse kOuterScale = OuterScaleUse::kNone;
  struct Interleaved : CodeLayout<NibbleOrder::kNone, /*kScalesOffset=*/0, /*kCodesOffset=*/2> {};

  VN_HOST_DEVICE static constexpr void decode_block(const std::byte* block, float* out) {
    decode_codes<Q8_0Format, Interleaved>(block, block, 0, kBlockValues, out);
  }
};

static_assert(Q4_0Format::kBlockBytes == Q4_0Format::Interleaved::kCodesAt + Q4_0Format::kBlockValues / 2);
static_assert(Q8_0Format::kBlockBytes == Q8_0Format::Interleaved::kCodesAt + Q8_0Format::kBlockValues);

/// What q4_1, q5_0 and q5_1 share. kHasMinimum: an F16 minimum follows the scale; else codes are centred.
/// kHasHighBits: a fifth bit of each code comes from a 32-bit word before the nibbles.
template <bool kMinimum, bool kHighBits>
struct GgmlBlock32 {
  static constexpr bool kHasMinimum = kMinimum;
  static constexpr bool kHasHighBits = kHighBits;
  static constexpr int kCentre = kMinimum ? 0 : kHighBits ? 16 : 8;
  static constexpr int kBlockValues = 32;
  static constexpr int kHighAt = kHasMinimum ? 4 : 2;
  static constexpr int kCodesAt = kHighAt + (kHasHighBits ? 4 : 0);
  static constexpr int kBlockBytes = kCodesAt + kBlockValues / 2;
  static constexpr OuterScaleUse kOuterScale = OuterScaleUse::kNone;
  /// The F16 numbers of a block, which must be finite.
  static constexpr auto f16_offsets() {
    if constexpr (kHasMinimum) {
      return std::array<int, 2>{0, 2};
    } else {
      return std::array<int, 1>{0};
    }
  }

  VN_HOST_DEVICE static void decode_block(const std::byte* block, float* out) {
    constexpr int kHalf = kBlockValues / 2;
    const float scale = load_f16(block);
    const float minimum = kHasMinimum ? load_f16(block + 2) : 0.0F;
    const std::uint32_t high = kHasHighBits ? load_u32(block + kHighAt) : 0;
    // Codes first, into memory that `out` can't overlap: compilers turn both loops into vector code.
    std::uint8_t codes[kBlockValues];
    for (int i = 0; i < kHalf; ++i) {
      codes[i] = load_u8(block + kCodesAt + i) & 0xF;
      codes[i + kHalf] = static_cast<std::uint8_t>(load_u8(block + kCodesAt + i) >> 4);
    }
    for (int i = 0; i < kBlockValues; ++i) {
      const int code = codes[i] | static_cast<int>(high >> i & 1) << 4;
      if constexpr (kHasMinimum) {
        out[i] = multiply_then_add(scale, static_cast<float>(code), minimum);
      } else {
        out[i] = scale * static_cast<float>(code - kCentre);
      }
    }
  }
};

struct Q4_1Format : GgmlBlock32</*kHasMinimum=*/true, /*kHasHighBits=*/false> {
  static constexpr std::string_view kName = "q4_1";
  static constexpr int kGgufType = 3;
};

struct Q5_0Format : GgmlBlock32</*kHasMinimum=*/false, /*kHasHighBits=*/true> {
  static constexpr std::string_view kName = "q5_0";
  static constexpr int kGgufType = 6;
};

struct Q5_1Format : GgmlBlock32</*kHasMinimum=*/true, /*kHasHighBits=*/true> {
  static constexpr std::string_view kName = "q5_1";
  static constexpr int kGgufType = 7;
};

static_assert(Q4_1Format::kBlockBytes == 20);
static_assert(Q5_0Format::kBlockBytes == 22);
static_assert(Q5_1Format::kBlockBytes == 24);

}  // namespace vernier
