#include "backend/cpu/row_products.h"

#include "format/format_list.h"
#include "format/grid_scale.h"

namespace vernier {
namespace {

using vernier_isa::kFewTokens;
using vernier_isa::RowKernels;
using vernier_isa::WeightRows;

/// From so many tokens on, inputs don't stay in a near cache unless more weight rows meet them at a time.
constexpr std::int64_t kManyTokens = 128;

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

void prepare_group(const RowKernels& kind, const GroupInputs& inputs, std::int64_t first) {
  float* prepared = inputs.prepared + first * inputs.stride;
  if (kind.prepare_group == nullptr) {
    kind.prepare(inputs.x[first], inputs.cols, inputs.precision == Precision::kBf16, prepared);
    return;
  }
  const std::int64_t count = std::min(vernier_isa::kTileColumns, inputs.tokens - first);
  kind.prepare_group(inputs.x + first, count, group_width(inputs.tokens), inputs.cols, prepared);
}

Status PreparedInputs::prepare(ThreadPool& pool, const vernier_isa::Kernels& kernels, const MatrixView& x,
                               Precision precision, std::span<const Weight* const> weights) {
  kinds_.clear();
  std::int64_t stride = 0;
  std::int64_t room = x.rows;
  for (const Weight* weight : weights) {
    const RowKernels* kind = &row_kernels_of(kernels, *weight);
    if (std::find(kinds_.begin(), kinds_.end(), kind) != kinds_.end()) continue;
    kinds_.push_back(kind);
    stride = std::max(stride, prepared_stride(*kind, x.cols));
    room = std::max(room, prepared_rows(*kind, x.rows));
  }
  const auto num_kinds = static_cast<std::int64_t>(kinds_.size());
  num_rows_ = static_cast<std::size_t>(x.rows);
  VN_ASSIGN(float* floats, floats_.get(static_cast<std::size_t>(num_kinds * room * stride)));
  VN_ASSIGN(const float** pointers, pointers_.get(static_cast<std::size_t>((num_kinds + 1) * x.rows)));
  first_ = pointers;
  const float** from = pointers + num_kinds * x.rows;
  for (std::int64_t t = 0; t < x.rows; ++t) from[t] = x.row(t);
  const auto prepare_rows = [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t i = begin; i < end; ++i) {
      const RowKernels& kind = *kinds_[static_cast<std::size_t>(i / x.rows)];
      const std::int64_t first = i % x.rows / group_tokens(kind) * group_tokens(kind);
      float* prepared = floats + i / x.rows * room * stride;
      pointers[i] = prepared + first * stride;
      if (i % x.rows != first) continue;
      prepare_group(kind, {from, x.rows, x.cols, precision, prepared, stride}, first);
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

std::int64_t rows_per_tile(const RowKernels& kind, std::int64_t tokens) {
  if (kind.prepare_group != nullptr) return vernier_isa::kTileBlockRows * (tokens < kManyTokens ? 1 : 4);
  return tokens <= kFewTokens ? 4 : 12;
}

std::int64_t min_tiles_per_worker(std::int64_t cols, std::int64_t tokens) {
  constexpr std::int64_t kWorthwhile = 32768;  // multiplications: a few microseconds, as is waking a thread
  constexpr std::int64_t kRows = 4;            // of the smallest tiles
  const std::int64_t rows = tokens <= kFewTokens ? kRows : 3 * kRows;
  return kWorthwhile / (rows * cols * std::max<std::int64_t>(tokens, 1)) + 1;
}

std::int64_t rows_per_block(const RowKernels& kind, std::int64_t tokens) {
  if (kind.prepare_group != nullptr) return 4 * vernier_isa::kTileBlockRows;
  return tokens <= kFewTokens ? 32 : 96;
}

std::int64_t tokens_per_block(const RowKernels& kind) { return kind.prepare_group != nullptr ? 512 : 128; }

std::size_t row_scratch_floats(const vernier_isa::Kernels& kernels, std::int64_t tokens) {
  // Those of tiles and those of other kernels: either may come.
  std::int64_t floats = 32 * kFewTokens;
  if (tokens > kFewTokens) {
    const std::int64_t together = std::min<std::int64_t>(tokens, 128);
    floats = vernier_isa::many_scratch_floats(96, together) + 96 * together;
  }
  if (kernels.unrounded != nullptr) {
    const std::int64_t together = std::min<std::int64_t>(tokens, 512);
    constexpr std::int64_t kRows = 4 * vernier_isa::kTileBlockRows;
    floats = std::max(floats, vernier_isa::tile_scratch_floats(kRows, together) + kRows * together);
  }
  return static_cast<std::size_t>(floats + 15) / 16 * 16;
}

BlockProducts multiply_block(const vernier_isa::Kernels& kernels, const Weight& weight, const ProductBlock& block,
                             float* scratch) {
  const RowKernels& kind = row_kernels_of(kernels, weight);
  const WeightRows rows = rows_of(weight);
  const auto tokens = static_cast<std::int64_t>(block.x.size());
  const bool in_tiles = kind.prepare_group != nullptr;
  if (tokens <= kFewTokens && !in_tiles) {
    kind.multiply_few({rows, block.begin, block.end, block.x.data(), tokens, scratch, block.coming});
    return {scratch, tokens, 1};
  }
  const std::int64_t num_rows = block.end - block.begin;
  float* products = scratch + (in_tiles ? vernier_isa::tile_scratch_floats(num_rows, tokens)
                                        : vernier_isa::many_scratch_floats(num_rows, tokens));
  kind.multiply_many(
      {rows, block.begin, block.end, block.x.data(), tokens, products, scratch, kernels.pairs, block.width});
  if (in_tiles) return {products, 1, num_rows};
  return {products, tokens, 1};
}

}  // namespace vernier
