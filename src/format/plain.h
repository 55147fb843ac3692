// Weights stored as ordinary floating-point numbers. GGUF and safetensors hold them alike: little-endian, row after
// row.
//
//   f32    seeeeeee emmmmmmm mmmmmmmm mmmmmmmm   (most significant byte first; in the file it comes last)
//   bf16   seeeeeee emmmmmmm
//   f16    seeeeemm mmmmmmmm
#pragma once

#include "format/block_format.h"

namespace vernier {

struct F32Format : CodedFormat<F32Codec, NoScale, 0> {
  static constexpr std::string_view kName = "f32";
  static constexpr int kGgufType = 0;
  static constexpr int kBlockValues = 1;
  static constexpr int kBlockBytes = 4;
  static constexpr OuterScaleUse kOuterScale = OuterScaleUse::kNone;
  struct Plain : CodeLayout<NibbleOrder::kNone> {};
};

struct F16Format : CodedFormat<F16Codec, NoScale, 0> {
  static constexpr std::string_view kName = "f16";
  static constexpr int kGgufType = 1;
  static constexpr int kBlockValues = 1;
  static constexpr int kBlockBytes = 2;
  static constexpr OuterScaleUse kOuterScale = OuterScaleUse::kNone;
  struct Plain : CodeLayout<NibbleOrder::kNone> {};
};

struct BF16Format : CodedFormat<BF16Codec, NoScale, 0> {
  static constexpr std::string_view kName = "bf16";
  static constexpr int kGgufType = 30;
  static constexpr int kBlockValues = 1;
  static constexpr int kBlockBytes = 2;
  static constexpr OuterScaleUse kOuterScale = OuterScaleUse::kNone;
  struct Plain : CodeLayout<NibbleOrder::kNone> {};
};

}  // namespace vernier
