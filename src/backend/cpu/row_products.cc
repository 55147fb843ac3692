#include "backend/cpu/row_products.h"

#include "format/format_list.h"
#include "format/grid_scale.h"

namespace vernier {
namespace {

using vernier_isa::kFewTokens;
using vernier_isa::RowKernels;
using vernier_isa::WeightRows;

template <DType kType>
float load_scale(const std::byte* scales, std::int64_t index) {
  return load_grid_scale(kType, scales, index);
}

WeightRows rows_of(const Weight& weight) {
  const std::int64_t row_bytes = format_info(weight.format).row_bytes(weight.layout, weight.cols).value_or(0);
  WeightRows rows = {.codes = weight.codes,
                     .row_stride = weight.row_stride,
                     .codes_end = weight.row_codes(weight.rows - 1) + row_bytes,
                     .scales = weight.scales,
                     .scale_stride = weight.scale_stride,
                     .scale_block_rows = weight.scale_block_rows,
                     .first_row = weight.first_row,
                     .cols = weight.cols,
                     .scale_block_cols = weight.scale_block_cols,
                     .grid_scale = load_scale<DType::kF32>};
  if (weight.scale_dtype == DType::kBF16) rows.grid_scale = load_scale<DType::kBF16>;
  if (weight.scale_dtype == DType::kF8E8M0) rows.grid_scale = load_scale<DType::kF8E8M0>;
  return rows;
}

}  // namespace

const RowKernels& row_kernels_of(const vernier_isa::Kernels& kernels, const Weight& weight) {
  return *kernels.row_kernels(static_cast<unsigned>(weight.format), static_cast<unsigned>(weight.layout),
                              weight.scale_block_cols);
}

Status PreparedInputs::prepare(ThreadPool& pool, const vernier_isa::Kernels& kernels, const MatrixView& x,
                               Precision precision, std::span<const Weight* const> weights) {
  kinds_.clear();
  std::int64_t stride = 0;
  for (const Weight* weight : weights) {
    const RowKernels* kind = &row_kernels_of(kernels, *weight);
    if (std::find(kinds_.begin(), kinds_.end(), kind) != kinds_.end()) continue;
    kinds_.push_back(kind);
    stride = std::max(stride, prepared_stride(*kind, x.cols));
  }
  const auto num_kinds = static_cast<std::int64_t>(kinds_.size());
  num_rows_ = static_cast<std::size_t>(x.rows);
  VN_ASSIGN(float* floats, floats_.get(static_cast<std::size_t>(num_kinds * x.rows * stride)));
  VN_ASSIGN(const float** pointers, pointers_.get(static_cast<std::size_t>(num_kinds * x.rows)));
  first_ = pointers;
  const auto prepare_rows = [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t i = begin; i < end; ++i) {
      float* prepared = floats + i * stride;
      kinds_[static_cast<std::size_t>(i / x.rows)]->prepare(x.row(i % x.rows), x.cols, precision == Precision::kBf16,
                                                            prepared);
      pointers[i] = prepared;
    }
  };
  constexpr std::int64_t kWorthwhile = 16384;
  pool.parallel_for(num_kinds * x.rows, prepare_rows, kWorthwhile / x.cols + 1);
  return {};
}

std::span<const float* const> PreparedInputs::rows(const RowKernels& kind) const {
  const auto index = static_cast<std::size_t>(std::find(kinds_.begin(), kinds_.end(), &kind) - kinds_.begin());
  return {first_ + index * num_rows_, num_rows_};
}

std::int64_t min_tiles_per_worker(std::int64_t cols, std::int64_t tokens) {
  constexpr std::int64_t kWorthwhile = 32768;  // multiplications: a few microseconds, as is waking a thread
  return kWorthwhile / (rows_per_tile(tokens) * cols * std::max<std::int64_t>(tokens, 1)) + 1;
}

std::size_t row_scratch_floats(std::int64_t tokens) {
  const std::int64_t rows = rows_per_block(tokens);
  const std::int64_t together = std::min(tokens, kTokensPerBlock);
  if (tokens <= kFewTokens) return static_cast<std::size_t>(rows * kFewTokens);
  const std::int64_t floats = vernier_isa::many_scratch_floats(rows, together) + rows * together;
  return static_cast<std::size_t>(floats + 15) / 16 * 16;
}

const float* multiply_block(const vernier_isa::Kernels& kernels, const Weight& weight, std::int64_t begin,
                            std::int64_t end, std::span<const float* const> x, float* scratch) {
  const RowKernels& kind = row_kernels_of(kernels, weight);
  const WeightRows rows = rows_of(weight);
  const auto tokens = static_cast<std::int64_t>(x.size());
  if (tokens <= kFewTokens) {
    kind.multiply_few({rows, begin, end, x.data(), tokens, scratch});
    return scratch;
  }
  float* products = scratch + vernier_isa::many_scratch_floats(end - begin, tokens);
  kind.multiply_many({rows, begin, end, x.data(), tokens, products, scratch, kernels.pairs});
  return products;
}

}  // namespace vernier
