// What kernels have to know about a format beyond its bytes, derived from its header.
#pragma once

#include <cstdint>
#include <type_traits>

#include "format/format_list.h"

namespace vernier::cuda {

constexpr int kLayoutCount = 3;

/// WeightRef::kind of a format and layout.
constexpr std::int16_t weight_kind(FormatId format, WeightLayout layout) {
  return static_cast<std::int16_t>(static_cast<int>(format) * kLayoutCount + static_cast<int>(layout));
}

/// Values of a unit where decoding may begin anywhere within a block.
constexpr int kFreeUnit = 16;

/// Values that a thread decodes at a time.
template <class F>
constexpr std::int16_t unit_values(WeightLayout layout) {
  if constexpr (!HasCodes<F>) return layout == WeightLayout::kInterleaved ? F::kBlockValues : 0;
  return kFreeUnit;
}

/// Significant bits of a codec's values.
template <class Codec>
constexpr int significant_bits() {
  if constexpr (std::is_same_v<Codec, F32Codec>) return 24;
  if constexpr (std::is_same_v<Codec, F16Codec>) return 11;
  if constexpr (std::is_same_v<Codec, E4M3Codec> || std::is_same_v<Codec, UE4M3Codec>) return 4;
  if constexpr (std::is_same_v<Codec, E2M1Codec>) return 2;
  if constexpr (std::is_same_v<Codec, E8M0Codec>) return 1;
  return 8;  // BF16, integers of at most 8 bits
}

/// How many bf16 numbers, of 8 significant bits each, a value of the format is the exact sum of.
template <class F>
constexpr std::uint8_t bf16_terms() {
  if constexpr (HasCodes<F>) {
    int bits = significant_bits<typename F::Element>();
    if constexpr (!std::is_same_v<typename F::Scale, NoScale> && !std::is_same_v<typename F::Scale, GridScale>) {
      if (significant_bits<typename F::Scale>() > 1) bits += significant_bits<typename F::Scale>();
    }
    return static_cast<std::uint8_t>(bits <= 8 ? 1 : bits <= 16 ? 2 : 3);
  }
  return 3;
}

}  // namespace vernier::cuda
