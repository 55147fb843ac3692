// NVFP4: E2M1 codes, an E4M3 scale (sign bit clear) for each 16 values along a row, and optionally a second-level fp32
// factor that the Weight carries. value = E2M1(code) * E4M3(scale); all 16 x 127 products are exact even in bf16.
//
// Interleaved (GGUF type 40): 64 values in 36 bytes. Four scales, then four groups of 8 bytes; in a group the low
// nibbles come first.
//
//   byte    0    1    2    3    4 ....... 11   12 ...... 19   20 ...... 27   28 ...... 35
//        | s0 | s1 | s2 | s3 | codes of s0  | codes of s1  | codes of s2  | codes of s3  |
//   byte j (0..7) of group g:  low nibble = value 16g + j,  high nibble = value 16g + 8 + j
//
// Separate (safetensors): codes [N, K/2], scales [N, K/16], neither swizzled.
//   byte j of a row:  low nibble = value 2j,  high nibble = value 2j + 1;  scale of value i: byte i/16 of the row's
//   scales
#pragma once

#include "format/block_format.h"

namespace vernier {

struct Nvfp4Format : CodedFormat<E2M1Codec, UE4M3Codec, 16> {
  static constexpr std::string_view kName = "nvfp4";
  static constexpr int kGgufType = 40;
  static constexpr int kBlockValues = 64;
  static constexpr int kBlockBytes = 36;
  static constexpr OuterScaleUse kOuterScale = OuterScaleUse::kOptional;
  struct Interleaved : CodeLayout<NibbleOrder::kHalves, /*kScalesOffset=*/0, /*kCodesOffset=*/4> {};
  struct Separate : CodeLayout<NibbleOrder::kPairs> {};

  VN_HOST_DEVICE static constexpr void decode_block(const std::byte* block, float* out) {
    decode_codes<Nvfp4Format, Interleaved>(block, block, 0, kBlockValues, out);
  }
};

static_assert(Nvfp4Format::kBlockBytes == Nvfp4Format::Interleaved::kCodesAt + Nvfp4Format::kBlockValues / 2);
static_assert(Nvfp4Format::Interleaved::kCodesAt == Nvfp4Format::kBlockValues / Nvfp4Format::kScaleValues);
static_assert(code_position<Nvfp4Format, Nvfp4Format::Interleaved>(16 + 8).byte == 12);
static_assert(code_position<Nvfp4Format, Nvfp4Format::Interleaved>(16 + 8).shift == 4);
static_assert(code_position<Nvfp4Format, Nvfp4Format::Interleaved>(63).byte == 35);
static_assert(code_position<Nvfp4Format, Nvfp4Format::Separate>(25).byte == 12);

}  // namespace vernier
