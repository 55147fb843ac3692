// ggml's "k" block types: 256 values a block, cut into sub-blocks with small integer scales under one or two F16
// factors.
//
//          byte offsets                                                    sub-blocks
//   q2_k   0 scales[16] | 16 q[64] | 80 d16 | 82 dmin16              84    16 of 16: d * (s & 15) * q - dmin * (s >> 4)
//   q3_k   0 high[32] | 32 q[64] | 96 scales[12] | 108 d16          110    16 of 16: d * (s - 32) * (q - 4 if high bit
//   clear) q4_k   0 d16 | 2 dmin16 | 4 scales[12] | 16 q[128]              144     8 of 32: d * s * q - dmin * m q5_k
//   0 d16 | 2 dmin16 | 4 scales[12] | 16 high[32] | 48 q[128] 176    8 of 32: the same with a fifth bit q6_k   0 q[128]
//   | 128 high[64] | 192 scales i8[16] | 208 d16    210    16 of 16: d * s * (q - 32)
//
// Two-bit codes: value i of each half (128 values) is bits 2(i/32).. of byte i%32 of that half's 32 bytes.
// Scale factors are rounded to fp32 before they meet the code, as ggml does: the values are ggml's to the bit.
#pragma once

#include "format/block_format.h"

namespace vernier {

struct Q2_KFormat {
  static constexpr std::string_view kName = "q2_k";
  static constexpr int kGgufType = 10;
  static constexpr int kBlockValues = 256;
  static constexpr int kBlockBytes = 84;
  static constexpr OuterScaleUse kOuterScale = OuterScaleUse::kNone;
  static constexpr std::array<int, 2> f16_offsets() { return {80, 82}; }

  VN_HOST_DEVICE static void decode_block(const std::byte* block, float* out) {
    const float scale = load_f16(block + 80);
    const float min_scale = load_f16(block + 82);
    for (int sub = 0; sub < 16; ++sub) {
      const int packed = load_u8(block + sub);
      const float factor = scale * static_cast<float>(packed & 0xF);
      const float minimum = min_scale * static_cast<float>(packed >> 4);
      for (int i = sub * 16; i < sub * 16 + 16; ++i) {
        const int code = load_u8(block + 16 + i / 128 * 32 + i % 32) >> (i % 128 / 32 * 2) & 3;
        out[i] = multiply_then_add(factor, static_cast<float>(code), -minimum);
      }
    }
  }
};

struct Q3_KFormat {
  static constexpr std::string_view kName = "q3_k";
  static constexpr int kGgufType = 11;
  static constexpr int kBlockValues = 256;
  static constexpr int kBlockBytes = 110;
  static constexpr OuterScaleUse kOuterScale = OuterScaleUse::kNone;
  static constexpr std::array<int, 1> f16_offsets() { return {108}; }

  /// The signed scale of a sub-block: four bits from the first eight bytes, two from the last four, minus 32.
  VN_HOST_DEVICE static constexpr int sub_scale(const std::byte* scales, int sub) {
    const int low = load_u8(scales + sub % 8) >> (sub < 8 ? 0 : 4) & 0xF;
    const int high = load_u8(scales + 8 + sub % 4) >> (sub / 4 * 2) & 3;
    return (low | high << 4) - 32;
  }

  VN_HOST_DEVICE static void decode_block(const std::byte* block, float* out) {
    const float scale = load_f16(block + 108);
    for (int sub = 0; sub < 16; ++sub) {
      const float factor = scale * static_cast<float>(sub_scale(block + 96, sub));
      for (int i = sub * 16; i < sub * 16 + 16; ++i) {
        const int low = load_u8(block + 32 + i / 128 * 32 + i % 32) >> (i % 128 / 32 * 2) & 3;
        const int high = load_u8(block + i % 32) >> (i / 32) & 1;
        out[i] = factor * static_cast<float>(low - (high != 0 ? 0 : 4));
      }
    }
  }
};

/// q4_k and q5_k: the same but for the fifth bit of q5_k.
template <bool kHighBits>
struct GgmlScaleMinBlock {
  static constexpr bool kHasHighBits = kHighBits;

  static constexpr int kBlockValues = 256;
  static constexpr int kHighAt = 16;
  static constexpr int kCodesAt = kHighAt + (kHasHighBits ? 32 : 0);
  static constexpr int kBlockBytes = kCodesAt + kBlockValues / 2;
  static constexpr OuterScaleUse kOuterScale = OuterScaleUse::kNone;
  static constexpr std::array<int, 2> f16_offsets() { return {0, 2}; }

  /// Six-bit scales of sub-blocks 0..3 are the low bits of bytes 0..3, minimums of bytes 4..7; those of sub-blocks 4..7
  /// have their low four bits in bytes 8..11 (scale low, minimum high) and their top two where bytes 0..7 have room.
  VN_HOST_DEVICE static constexpr int sub_scale(const std::byte* scales, int sub) {
    if (sub < 4) return load_u8(scales + sub) & 63;
    return (load_u8(scales + sub + 4) & 0xF) | load_u8(scales + sub - 4) >> 6 << 4;
  }
  VN_HOST_DEVICE static constexpr int sub_minimum(const std::byte* scales, int sub) {
    if (sub < 4) return load_u8(scales + sub + 4) & 63;
    return load_u8(scales + sub + 4) >> 4 | load_u8(scales + sub) >> 6 << 4;
  }

  /// All of a block at once, a byte each: eight scales, then eight minimums.
  VN_HOST_DEVICE static constexpr void unpack_scales(const std::byte* block, std::uint64_t (&out)[2]) {
    const std::uint32_t first = load_u32(block + 4);
    const std::uint32_t second = load_u32(block + 8);
    const std::uint32_t third = load_u32(block + 12);
    out[0] = (first & 0x3F3F3F3F) | static_cast<std::uint64_t>((third & 0x0F0F0F0F) | (first >> 6 & 0x03030303) << 4)
                                        << 32;
    out[1] = (second & 0x3F3F3F3F) |
             static_cast<std::uint64_t>((third >> 4 & 0x0F0F0F0F) | (second >> 6 & 0x03030303) << 4) << 32;
  }

  VN_HOST_DEVICE static void decode_block(const std::byte* block, float* out) {
    const float scale = load_f16(block);
    const float min_scale = load_f16(block + 2);
    for (int sub = 0; sub < 8; ++sub) {
      const float factor = scale * static_cast<float>(sub_scale(block + 4, sub));
      const float minimum = min_scale * static_cast<float>(sub_minimum(block + 4, sub));
      for (int i = 0; i < 32; ++i) {
        int code = load_u8(block + kCodesAt + sub / 2 * 32 + i) >> (sub % 2 * 4) & 0xF;
        if constexpr (kHasHighBits) code |= (load_u8(block + kHighAt + i) >> sub & 1) << 4;
        out[sub * 32 + i] = multiply_then_add(factor, static_cast<float>(code), -minimum);
      }
    }
  }
};

struct Q4_KFormat : GgmlScaleMinBlock</*kHasHighBits=*/false> {
  static constexpr std::string_view kName = "q4_k";
  static constexpr int kGgufType = 12;
};

struct Q5_KFormat : GgmlScaleMinBlock</*kHasHighBits=*/true> {
  static constexpr std::string_view kName = "q5_k";
  static constexpr int kGgufType = 13;
};

struct Q6_KFormat {
  static constexpr std::string_view kName = "q6_k";
  static constexpr int kGgufType = 14;
  static constexpr int kBlockValues = 256;
  static constexpr int kBlockBytes = 210;
  static constexpr int kTopBitsAt = 128;
  static constexpr int kScalesAt = 192;
  static constexpr int kFactorAt = 208;
  static constexpr OuterScaleUse kOuterScale = OuterScaleUse::kNone;
  static constexpr std::array<int, 1> f16_offsets() { return {kFactorAt}; }

  VN_HOST_DEVICE static void decode_block(const std::byte* block, float* out) {
    const float scale = load_f16(block + kFactorAt);
    // Codes first, into memory that `out` can't overlap: compilers turn both loops into vector code.
    std::uint8_t codes[kBlockValues];
    for (int quarter = 0; quarter < 8; ++quarter) {  // 32 values each, four of them in each half
      const std::byte* low = block + quarter / 4 * 64 + quarter % 2 * 32;
      const std::byte* high = block + kTopBitsAt + quarter / 4 * 32;
      for (int i = 0; i < 32; ++i) {
        const int low_bits = load_u8(low + i) >> (quarter % 4 / 2 * 4) & 0xF;
        const int high_bits = load_u8(high + i) >> (quarter % 4 * 2) & 3;
        codes[quarter * 32 + i] = static_cast<std::uint8_t>(low_bits | high_bits << 4);
      }
    }
    for (int sub = 0; sub < 16; ++sub) {
      const float factor = scale * static_cast<float>(static_cast<std::int8_t>(load_u8(block + kScalesAt + sub)));
      for (int i = sub * 16; i < sub * 16 + 16; ++i) out[i] = factor * static_cast<float>(codes[i] - 32);
    }
  }
};

static_assert(Q2_KFormat::kBlockBytes == 16 + 64 + 2 * 2);
static_assert(Q3_KFormat::kBlockBytes == 32 + 64 + 12 + 2);
static_assert(Q4_KFormat::kBlockBytes == 144);
static_assert(Q5_KFormat::kBlockBytes == 176);
static_assert(Q6_KFormat::kBlockBytes == 128 + 64 + 16 + 2);

}  // namespace vernier
