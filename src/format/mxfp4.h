// MXFP4 (OCP Microscaling): E2M1 codes and an E8M0 scale for each 32 values along a row. value = E2M1(code) * 2^(scale
// - 127). Exact in fp32 unless it overflows (scale 253 with |code| >= 4, 254 with |code| >= 2); scales 0 and 1 reach
// subnormals.
//
// Interleaved (GGUF type 39): 32 values in 17 bytes.
//
//   byte    0     1 .............. 16
//        | scale | codes             |      byte 1 + j:  low nibble = value j,  high nibble = value 16 + j
//
// Separate (safetensors): codes [N, K/2] or [N, K/32, 16], scales [N, K/32].
//   byte j of a row:  low nibble = value 2j,  high nibble = value 2j + 1;  scale of value i: byte i/32 of the row's
//   scales
#pragma once

#include "format/block_format.h"

namespace vernier {

struct Mxfp4Format : CodedFormat<E2M1Codec, E8M0Codec, 32> {
  static constexpr std::string_view kName = "mxfp4";
  static constexpr int kGgufType = 39;
  static constexpr int kBlockValues = 32;
  static constexpr int kBlockBytes = 17;
  static constexpr OuterScaleUse kOuterScale = OuterScaleUse::kNone;
  struct Interleaved : CodeLayout<NibbleOrder::kHalves, /*kScalesOffset=*/0, /*kCodesOffset=*/1> {};
  struct Separate : CodeLayout<NibbleOrder::kPairs> {};

  VN_HOST_DEVICE static constexpr void decode_block(const std::byte* block, float* out) {
    decode_codes<Mxfp4Format, Interleaved>(block, block, 0, kBlockValues, out);
  }
};

static_assert(Mxfp4Format::kBlockBytes == Mxfp4Format::Interleaved::kCodesAt + Mxfp4Format::kBlockValues / 2);
static_assert(code_position<Mxfp4Format, Mxfp4Format::Interleaved>(15).byte == 16);
static_assert(code_position<Mxfp4Format, Mxfp4Format::Interleaved>(16).byte == 1);
static_assert(code_position<Mxfp4Format, Mxfp4Format::Interleaved>(16).shift == 4);
static_assert(code_position<Mxfp4Format, Mxfp4Format::Separate>(31).byte == 15);

}  // namespace vernier
