// A matrix of a model as its file stores it: where the codes are, where the scales are, and the fp32 factor on top.
// A Weight never owns converted values; nothing here is rounded or requantised.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "tensor/dtype.h"
#include "tensor/format_id.h"

namespace vernier {

/// How codes and block scales lie relative to each other.
enum class WeightLayout : std::uint8_t {
  kPlain,        ///< one element a value, no block scales (F32, BF16, F8_E4M3 with row or tensor scales)
  kInterleaved,  ///< ggml blocks: scales and codes of a block together
  kSeparate,     ///< codes in one array, block scales in another (safetensors)
};

/// The second-level fp32 factor of a weight. It is applied in fp32 to the finished product of a row, before the result
/// is rounded to anything: y = (W x) * factor, or / factor where `divides` (compressed-tensors' global scale).
struct OuterScale {
  /// Empty: factor 1. One value: the whole matrix. `rows` values: one a row.
  std::vector<float> values;
  bool divides = false;

  [[nodiscard]] bool empty() const { return values.empty(); }
  [[nodiscard]] bool per_row() const { return values.size() > 1; }
  /// Applies the factor of `row` to a product.
  [[nodiscard]] float apply(float product, std::int64_t row) const {
    if (values.empty()) return product;
    const float factor = values.size() == 1 ? values[0] : values[static_cast<std::size_t>(row)];
    return divides ? product / factor : product * factor;
  }
};

/// A [rows, cols] matrix (out features x in features). Row r's codes begin at codes + r * row_stride. Experts of a bank
/// are one Weight each; gate and up halves or interleaved rows of a fused tensor are views with their own origin or
/// stride.
struct Weight {
  FormatId format{};
  WeightLayout layout = WeightLayout::kPlain;
  std::int64_t rows = 0;  ///< out features, N
  std::int64_t cols = 0;  ///< in features, K: the contraction axis

  const std::byte* codes = nullptr;  ///< no alignment is promised
  std::int64_t row_stride = 0;       ///< bytes from a row's codes to the next row's

  // Block scales, kSeparate only. Element (r, c) has the scale at grid row (first_row + r) / scale_block_rows and grid
  // column c / scale_block_cols; grid row g begins at scales + g * scale_stride. Edge blocks may be partial.
  const std::byte* scales = nullptr;
  std::int64_t scale_stride = 0;  ///< bytes
  DType scale_dtype = DType::kF32;
  std::int32_t scale_block_rows = 1;
  std::int32_t scale_block_cols = 0;
  std::int64_t first_row = 0;  ///< this view's row 0 within the tensor that the grid belongs to

  OuterScale outer;
  std::shared_ptr<const void> owner;  ///< keeps the bytes alive (a mapped file or a buffer)

  [[nodiscard]] bool present() const { return codes != nullptr; }
  [[nodiscard]] const std::byte* row_codes(std::int64_t row) const { return codes + row * row_stride; }
  [[nodiscard]] const std::byte* row_scales(std::int64_t row) const {
    return scales + (first_row + row) / scale_block_rows * scale_stride;
  }
};

}  // namespace vernier
