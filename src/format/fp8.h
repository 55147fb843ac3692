// FP8 weights of safetensors files: E4M3 codes, one byte a value, row after row. They differ in where the fp32 factor
// is:
//
//   fp8-block    a grid of scales beside the codes, one for each (say 128 x 128) tile; w = code * scale(tile)
//   fp8-row      one factor a row     } the second-level scale of the Weight, applied to the finished product
//   fp8-tensor   one factor in all    }
//
//   row r:  | code 0 | code 1 | ... | code K-1 |        code: s eeee mmm
//   grid :  | scale(0,0) | scale(0,1) | ...             tile of (r, c): (first_row + r) / block rows, c / block cols
//
// Scales multiply (also where a file calls them "inverse"). Edge tiles may be partial; a grid's scales are F32, BF16 or
// E8M0 (then each is a power of two), and are used as they are, never rounded.
#pragma once

#include "format/block_format.h"

namespace vernier {

struct Fp8BlockFormat : CodedFormat<E4M3Codec, GridScale, 0> {
  static constexpr std::string_view kName = "fp8-block";
  static constexpr int kGgufType = kNoGgufType;
  static constexpr int kBlockValues = 1;
  static constexpr int kBlockBytes = 1;
  static constexpr OuterScaleUse kOuterScale = OuterScaleUse::kNone;
  struct Separate : CodeLayout<NibbleOrder::kNone> {};
};

struct Fp8RowFormat : CodedFormat<E4M3Codec, NoScale, 0> {
  static constexpr std::string_view kName = "fp8-row";
  static constexpr int kGgufType = kNoGgufType;
  static constexpr int kBlockValues = 1;
  static constexpr int kBlockBytes = 1;
  static constexpr OuterScaleUse kOuterScale = OuterScaleUse::kRequired;
  struct Plain : CodeLayout<NibbleOrder::kNone> {};
};

struct Fp8TensorFormat : CodedFormat<E4M3Codec, NoScale, 0> {
  static constexpr std::string_view kName = "fp8-tensor";
  static constexpr int kGgufType = kNoGgufType;
  static constexpr int kBlockValues = 1;
  static constexpr int kBlockBytes = 1;
  static constexpr OuterScaleUse kOuterScale = OuterScaleUse::kRequired;
  struct Plain : CodeLayout<NibbleOrder::kNone> {};
};

}  // namespace vernier
