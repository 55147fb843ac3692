// Weights over bytes that a test owns.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include "format/format_list.h"

namespace vernier::test {

/// A plain or interleaved weight over `codes`, rows without gaps.
inline Weight weight_over(std::string_view format, WeightLayout layout, std::int64_t rows, std::int64_t cols,
                          const std::vector<std::byte>& codes) {
  Weight weight;
  weight.format = find_format(format).value();
  weight.layout = layout;
  weight.rows = rows;
  weight.cols = cols;
  weight.codes = codes.data();
  weight.row_stride = format_info(weight.format).row_bytes(layout, cols).value();
  return weight;
}

/// A weight with scales in an array of their own.
inline Weight separate_weight(std::string_view format, std::int64_t rows, std::int64_t cols,
                              const std::vector<std::byte>& codes, const std::vector<std::byte>& scales) {
  Weight weight = weight_over(format, WeightLayout::kSeparate, rows, cols, codes);
  const FormatInfo& info = format_info(weight.format);
  weight.scales = scales.data();
  weight.scale_dtype = info.scale_dtype;
  weight.scale_block_cols = info.scale_values;
  if (info.scale_values > 0) weight.scale_stride = cols / info.scale_values * (dtype_bits(info.scale_dtype) / 8);
  return weight;
}

/// An fp8-block weight: codes under a grid of tiles of tile_rows x tile_cols.
inline Weight grid_weight(std::int64_t rows, std::int64_t cols, const std::vector<std::byte>& codes, DType scale_dtype,
                          const std::vector<std::byte>& scales, std::int32_t tile_rows, std::int32_t tile_cols) {
  Weight weight = separate_weight("fp8-block", rows, cols, codes, scales);
  weight.scale_dtype = scale_dtype;
  weight.scale_block_rows = tile_rows;
  weight.scale_block_cols = tile_cols;
  weight.scale_stride = (cols + tile_cols - 1) / tile_cols * (dtype_bits(scale_dtype) / 8);
  return weight;
}

/// The bytes of an array.
template <class T>
std::vector<std::byte> bytes_of(const std::vector<T>& values) {
  const auto* first = reinterpret_cast<const std::byte*>(values.data());
  return {first, first + values.size() * sizeof(T)};
}

}  // namespace vernier::test
