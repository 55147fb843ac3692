// Scales whose dtype a Weight states at run time: the grids of tile-scaled weights.
#pragma once

#include <cstdint>

#include "format/block_format.h"
#include "tensor/dtype.h"
#include "tensor/weight.h"

namespace vernier {

/// Whether grids of this dtype exist.
[[nodiscard]] constexpr bool is_grid_scale_dtype(DType type) {
  return type == DType::kF32 || type == DType::kBF16 || type == DType::kF8E8M0;
}

/// Scale `i` of an array of scales; NaN for a dtype that grids don't have. Every dtype expands to float exactly.
[[nodiscard]] constexpr float load_grid_scale(DType type, const std::byte* scales, std::int64_t i) {
  switch (type) {
    case DType::kF32: return F32Codec::decode(load_element<F32Codec>(scales, i));
    case DType::kBF16: return BF16Codec::decode(load_element<BF16Codec>(scales, i));
    case DType::kF8E8M0: return E8M0Codec::decode(load_element<E8M0Codec>(scales, i));
    default: return F32Codec::decode(codec_detail::kQuietNan);
  }
}

/// Separate block scales along one row of a weight.
[[nodiscard]] constexpr std::int64_t scales_per_row(const Weight& weight) {
  return (weight.cols + weight.scale_block_cols - 1) / weight.scale_block_cols;
}

}  // namespace vernier
