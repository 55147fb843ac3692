#include "backend/cpu/row_products.h"

#include "format/format_list.h"
#include "format/grid_scale.h"

namespace vernier {
namespace {

/// Weights in a near cache want whole vectors apart.
std::int64_t row_stride(std::int64_t cols) { return (cols + 15) / 16 * 16; }

bool has_grid(const Weight& weight) {
  return weight.layout == WeightLayout::kSeparate && format_info(weight.format).has_grid;
}

}  // namespace

std::size_t row_scratch_floats(std::int64_t cols, std::int64_t tokens) {
  // Decoded rows, their products, and the scales of a grid (never more than columns).
  const std::int64_t a_row = row_stride(cols) + tokens + cols;
  return static_cast<std::size_t>(rows_per_tile(tokens) * a_row + 16) / 16 * 16;
}

std::int64_t min_tiles_per_worker(std::int64_t cols, std::int64_t tokens) {
  constexpr std::int64_t kWorthwhile = 16384;  // multiplications: a few microseconds, as is waking a thread
  return kWorthwhile / (rows_per_tile(tokens) * cols * std::max<std::int64_t>(tokens, 1)) + 1;
}

const float* multiply_tile(const vernier_isa::Kernels& kernels, const Weight& weight, std::int64_t begin,
                           std::int64_t end, std::span<const float* const> x, float* scratch) {
  const auto tokens = static_cast<std::int64_t>(x.size());
  const std::int64_t stride = row_stride(weight.cols);
  float* rows = scratch;
  float* products = rows + rows_per_tile(tokens) * stride;
  float* scales = products + rows_per_tile(tokens) * tokens;

  const auto decode = kernels.decode_row(static_cast<unsigned>(weight.format), static_cast<unsigned>(weight.layout));
  const bool separate = weight.layout == WeightLayout::kSeparate;
  for (std::int64_t n = begin; n < end; ++n) {
    decode(weight.row_codes(n), separate ? weight.row_scales(n) : nullptr, weight.cols, rows + (n - begin) * stride);
  }
  vernier_isa::DotTile tile = {.w = rows,
                               .w_stride = stride,
                               .rows = end - begin,
                               .x = x.data(),
                               .tokens = tokens,
                               .cols = weight.cols,
                               .segment = 0,
                               .segment_scales = nullptr,
                               .segment_stride = 0,
                               .products = products,
                               .product_stride = tokens};
  if (has_grid(weight)) {
    tile.segment = weight.scale_block_cols;
    tile.segment_scales = scales;
    tile.segment_stride = scales_per_row(weight);
    for (std::int64_t n = begin; n < end; ++n) {
      for (std::int64_t g = 0; g < tile.segment_stride; ++g) {
        *scales++ = load_grid_scale(weight.scale_dtype, weight.row_scales(n), g);
      }
    }
  }
  kernels.dot_tile(tile);
  for (std::int64_t n = begin; n < end; ++n) {
    float* row = products + (n - begin) * tokens;
    for (std::int64_t t = 0; t < tokens; ++t) row[t] = weight.outer.apply(row[t], n);
  }
  return products;
}

}  // namespace vernier
