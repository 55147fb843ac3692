// Where the bytes of a weight lie, as rows: for whoever copies or counts them without knowing the format.
#pragma once

#include <cstddef>
#include <cstdint>

#include "format/format_list.h"
#include "format/grid_scale.h"
#include "tensor/weight.h"

namespace vernier {

/// Rows of bytes, `stride` from one to the next.
struct StoredRows {
  const std::byte* data = nullptr;
  std::int64_t rows = 0;
  std::int64_t row_bytes = 0;
  std::int64_t stride = 0;
  /// Gaps between rows not counted.
  [[nodiscard]] std::int64_t size() const { return rows * row_bytes; }
};

/// The weight's codes (whole blocks in the interleaved layout). row_bytes is 0 for a layout that the format lacks.
[[nodiscard]] inline StoredRows code_rows(const Weight& weight) {
  const std::int64_t row_bytes = format_info(weight.format).row_bytes(weight.layout, weight.cols).value_or(0);
  return {weight.codes, weight.rows, row_bytes, weight.row_stride};
}

/// The rows of separate block scales that the weight's rows reach; none in other layouts.
[[nodiscard]] inline StoredRows scale_rows(const Weight& weight) {
  if (weight.layout != WeightLayout::kSeparate || weight.rows == 0) return {};
  const std::int64_t first = weight.first_row / weight.scale_block_rows;
  const std::int64_t last = (weight.first_row + weight.rows - 1) / weight.scale_block_rows;
  const std::int64_t row_bytes = scales_per_row(weight) * (dtype_bits(weight.scale_dtype) / 8);
  return {weight.scales + first * weight.scale_stride, last - first + 1, row_bytes, weight.scale_stride};
}

}  // namespace vernier
