// ggml's 4-bit types with a fixed, non-uniform table of 16 values.
//
//   iq4_nl   0 d16 | 2 codes[16]                                     18    32 values: d * table[code]
//   iq4_xs   0 d16 | 2 high u16 | 4 low[4] | 8 codes[128]           136    256 values: d * (s - 32) * table[code]
//
// Nibbles are in halves of 32 values: byte j of a group of 16 holds value j (low) and value j + 16 (high). The scale s
// of iq4_xs's sub-block b (32 values) has its low four bits in nibble b of `low` and its top two at bits 2b of `high`.
#pragma once

#include "format/block_format.h"

namespace vernier {

/// The table that both types share.
struct Iq4Codec {
  using Code = std::uint8_t;
  static constexpr int kBits = 4;
  static constexpr float kMax = 127.0f;
  VN_HOST_DEVICE static constexpr float decode(Code code) {
    constexpr std::int8_t kValues[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
    return static_cast<float>(kValues[code & 0xF]);
  }
  VN_HOST_DEVICE static constexpr bool is_finite(Code) { return true; }
};

struct Iq4NlFormat : CodedFormat<Iq4Codec, F16Codec, 32> {
  static constexpr std::string_view kName = "iq4_nl";
  static constexpr int kGgufType = 20;
  static constexpr int kBlockValues = 32;
  static constexpr int kBlockBytes = 18;
  static constexpr OuterScaleUse kOuterScale = OuterScaleUse::kNone;
  struct Interleaved : CodeLayout<NibbleOrder::kHalves, /*kScalesOffset=*/0, /*kCodesOffset=*/2> {};

  VN_HOST_DEVICE static constexpr void decode_block(const std::byte* block, float* out) {
    decode_codes<Iq4NlFormat, Interleaved>(block, block, 0, kBlockValues, out);
  }
};

struct Iq4XsFormat {
  static constexpr std::string_view kName = "iq4_xs";
  static constexpr int kGgufType = 23;
  static constexpr int kBlockValues = 256;
  static constexpr int kBlockBytes = 136;
  static constexpr OuterScaleUse kOuterScale = OuterScaleUse::kNone;
  static constexpr std::array<int, 1> f16_offsets() { return {0}; }

  VN_HOST_DEVICE static constexpr int sub_scale(const std::byte* block, int sub) {
    const int low = load_u8(block + 4 + sub / 2) >> (sub % 2 * 4) & 0xF;
    const int high = load_u16(block + 2) >> (2 * sub) & 3;
    return (low | high << 4) - 32;
  }

  VN_HOST_DEVICE static void decode_block(const std::byte* block, float* out) {
    const float scale = load_f16(block);
    for (int sub = 0; sub < 8; ++sub) {
      const float factor = scale * static_cast<float>(sub_scale(block, sub));
      for (int i = 0; i < 32; ++i) {
        const int code = load_u8(block + 8 + sub * 16 + i % 16) >> (i / 16 * 4) & 0xF;
        out[sub * 32 + i] = factor * decode_code<Iq4Codec>(static_cast<Iq4Codec::Code>(code));
      }
    }
  }
};

static_assert(Iq4NlFormat::kBlockBytes == Iq4NlFormat::Interleaved::kCodesAt + Iq4NlFormat::kBlockValues / 2);
static_assert(Iq4XsFormat::kBlockBytes == 2 + 2 + 4 + 128);

}  // namespace vernier
