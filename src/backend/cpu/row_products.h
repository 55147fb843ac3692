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

/// How the rows of a weight are multiplied. The weight must have a layout that its format has.
[[nodiscard]] const vernier_isa::RowKernels& row_kernels_of(const vernier_isa::Kernels& kernels, const Weight& weight);

/// Floats from one prepared row to the next: apart enough that rows don't compete for the same lines of a cache.
[[nodiscard]] inline std::int64_t prepared_stride(const vernier_isa::RowKernels& kind, std::int64_t cols) {
  return (kind.input_floats(cols) + 15) / 16 * 16 + 16;
}

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
[[nodiscard]] constexpr std::int64_t rows_per_tile(std::int64_t tokens) {
  return tokens <= vernier_isa::kFewTokens ? 4 : 12;
}

/// Tiles below which a second worker costs more than it brings.
[[nodiscard]] std::int64_t min_tiles_per_worker(std::int64_t cols, std::int64_t tokens);

/// Rows and tokens that multiply_block() takes at most, so that what it works on stays in a near cache.
[[nodiscard]] constexpr std::int64_t rows_per_block(std::int64_t tokens) {
  return tokens <= vernier_isa::kFewTokens ? 32 : 96;
}
inline constexpr std::int64_t kTokensPerBlock = 128;

/// Floats of scratch that multiply_rows() needs.
[[nodiscard]] std::size_t row_scratch_floats(std::int64_t tokens);

/// Products of rows [begin, end) of a weight, without its second-level scale: [(row - begin) * x.size() + token], in
/// the scratch.
[[nodiscard]] const float* multiply_block(const vernier_isa::Kernels& kernels, const Weight& weight, std::int64_t begin,
                                          std::int64_t end, std::span<const float* const> x, float* scratch);

/// Calls emit(n, t, product) for rows [begin, end) of a weight and all tokens, whose prepared rows are `x`.
template <class Emit>  // NOLINTNEXTLINE(readability-function-size): the bounds and the scratch belong apart
void multiply_rows(const vernier_isa::Kernels& kernels, const Weight& weight, std::int64_t begin, std::int64_t end,
                   std::span<const float* const> x, float* scratch, Emit emit) {
  const auto tokens = static_cast<std::int64_t>(x.size());
  const std::int64_t step = rows_per_block(tokens);
  for (std::int64_t n = begin; n < end; n += step) {
    const std::int64_t block_end = std::min(n + step, end);
    for (std::int64_t first = 0; first < tokens; first += kTokensPerBlock) {
      const std::int64_t count = std::min(kTokensPerBlock, tokens - first);
      const float* products =
          multiply_block(kernels, weight, n, block_end,
                         x.subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(count)), scratch);
      for (std::int64_t t = 0; t < count; ++t) {
        for (std::int64_t row = n; row < block_end; ++row) {
          emit(row, first + t, weight.outer.apply(products[(row - n) * count + t], row));
        }
      }
    }
  }
}

}  // namespace vernier
