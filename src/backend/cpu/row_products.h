// The matrix product of the CPU backend: rows of a weight times prepared activations, for one worker. Sharing rows
// among workers is the caller's.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "backend/cpu/isa/kernels.h"
#include "backend/cpu/scratch.h"
#include "base/thread_pool.h"
#include "tensor/weight.h"

namespace vernier {

/// Those for inputs that aren't rounded to bf16.
[[nodiscard]] inline const vernier_isa::Kernels& unrounded_kernels(const vernier_isa::Kernels& kernels) {
  return kernels.unrounded != nullptr ? *kernels.unrounded : kernels;
}

/// How the rows of a weight are multiplied. The weight must have a layout that its format has.
[[nodiscard]] const vernier_isa::RowKernels& row_kernels_of(const vernier_isa::Kernels& kernels, const Weight& weight);

/// Floats from one prepared row to the next: apart enough that rows don't compete for the same lines of a cache.
[[nodiscard]] inline std::int64_t prepared_stride(const vernier_isa::RowKernels& kind, std::int64_t cols) {
  return (kind.input_floats(cols) + 15) / 16 * 16 + 16;
}

/// Tokens that are prepared together; the pointer to a prepared row is then that to its group.
[[nodiscard]] inline std::int64_t group_tokens(const vernier_isa::RowKernels& kind) {
  return kind.prepare_group != nullptr ? vernier_isa::kTileColumns : 1;
}

/// Columns of the groups of so many tokens.
[[nodiscard]] inline std::int64_t group_width(std::int64_t tokens) {
  return std::min(tokens, vernier_isa::kTileColumns);
}

/// Rows for which there must be room where `tokens` rows are prepared.
[[nodiscard]] inline std::int64_t prepared_rows(const vernier_isa::RowKernels& kind, std::int64_t tokens) {
  const std::int64_t together = group_tokens(kind);
  return tokens <= together ? tokens : (tokens + together - 1) / together * together;
}

/// Rows [first, first + group_tokens(kind)) of the `tokens` rows x, or those that there are, `stride` apart in
/// prepared.
struct GroupInputs {
  const float* const* x;
  std::int64_t tokens;
  std::int64_t cols;
  Precision precision;
  float* prepared;
  std::int64_t stride;
};
void prepare_group(const vernier_isa::RowKernels& kind, const GroupInputs& inputs, std::int64_t first);

/// Activation rows, prepared once for each kind of weight that they will meet.
class PreparedInputs {
 public:
  /// The kinds are those of `weights`. Contents are valid until the next call.
  [[nodiscard]] Status prepare(ThreadPool& pool, const vernier_isa::Kernels& kernels, const MatrixView& x,
                               Precision precision, std::span<const Weight* const> weights);
  /// Pointers to the rows as weights of this kind take them.
  [[nodiscard]] std::span<const float* const> rows(const vernier_isa::RowKernels& kind) const;

 private:
  Scratch<float> floats_;
  Scratch<const float*> pointers_;
  std::vector<const vernier_isa::RowKernels*> kinds_;
  const float* const* first_ = nullptr;  ///< [kinds, rows]
  std::size_t num_rows_ = 0;
};

/// Rows of a weight that one worker takes at least.
[[nodiscard]] std::int64_t rows_per_tile(const vernier_isa::RowKernels& kind, std::int64_t tokens);

/// Tiles below which a second worker costs more than it brings.
[[nodiscard]] std::int64_t min_tiles_per_worker(std::int64_t cols, std::int64_t tokens);

/// Rows and tokens that multiply_block() takes at most, so that what it works on stays in a near cache.
[[nodiscard]] std::int64_t rows_per_block(const vernier_isa::RowKernels& kind, std::int64_t tokens);
[[nodiscard]] std::int64_t tokens_per_block(const vernier_isa::RowKernels& kind);

/// Floats of scratch that multiply_rows() needs, whatever the weight.
[[nodiscard]] std::size_t row_scratch_floats(const vernier_isa::Kernels& kernels, std::int64_t tokens);

/// Some rows of a weight and some tokens, of inputs that were prepared in groups of `width`.
struct ProductBlock {
  std::int64_t begin;
  std::int64_t end;
  std::span<const float* const> x;
  std::int64_t width;
  vernier_isa::ComingRows coming = {};  ///< after row end - 1, of a weight that is stored as this
};

/// Products in scratch: that of row r of the block with token t is at [r * row_step + t * token_step].
struct BlockProducts {
  const float* at;
  std::int64_t row_step;
  std::int64_t token_step;
};

/// Products of rows [begin, end) of a weight, without its second-level scale.
[[nodiscard]] BlockProducts multiply_block(const vernier_isa::Kernels& kernels, const Weight& weight,
                                           const ProductBlock& block, float* scratch);

/// Rows [row, ..) of a weight as what comes after others.
[[nodiscard]] inline vernier_isa::ComingRows coming_rows(const Weight& weight, std::int64_t row) {
  return {weight.row_codes(row), weight.scales != nullptr ? weight.row_scales(row) : nullptr};
}

/// Calls emit(n, t, product) for rows [begin, end) of a weight and all tokens, whose prepared rows are `x`. `coming` is
/// what the worker will read then.
template <class Emit>  // NOLINTNEXTLINE(readability-function-size): the bounds and the scratch belong apart
void multiply_rows(const vernier_isa::Kernels& kernels, const Weight& weight, std::int64_t begin, std::int64_t end,
                   std::span<const float* const> x, float* scratch, Emit emit,
                   const vernier_isa::ComingRows& coming = {}) {
  const auto tokens = static_cast<std::int64_t>(x.size());
  const vernier_isa::RowKernels& kind = row_kernels_of(kernels, weight);
  const std::int64_t step = rows_per_block(kind, tokens);
  const std::int64_t most_tokens = tokens_per_block(kind);
  for (std::int64_t n = begin; n < end; n += step) {
    const std::int64_t block_end = std::min(n + step, end);
    for (std::int64_t first = 0; first < tokens; first += most_tokens) {
      const std::int64_t count = std::min(most_tokens, tokens - first);
      const ProductBlock block = {n, block_end,
                                  x.subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(count)),
                                  group_width(tokens), block_end == end ? coming : vernier_isa::ComingRows{}};
      const BlockProducts products = multiply_block(kernels, weight, block, scratch);
      for (std::int64_t t = 0; t < count; ++t) {
        const float* product = products.at + t * products.token_step;
        for (std::int64_t row = n; row < block_end; ++row, product += products.row_step) {
          emit(row, first + t, weight.outer.apply(*product, row));
        }
      }
    }
  }
}

}  // namespace vernier
