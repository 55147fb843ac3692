// The matrix product of the CPU backend: tiles of weight rows are decoded to fp32 and multiplied with all tokens.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "backend/cpu/isa/kernels.h"
#include "tensor/weight.h"

namespace vernier {

/// Rows of a weight decoded at a time: with many tokens more, so that a token's values, once in a near cache, meet more
/// rows.
[[nodiscard]] constexpr std::int64_t rows_per_tile(std::int64_t tokens) { return tokens <= 4 ? 4 : 16; }

/// Floats of scratch that multiply_rows() needs.
[[nodiscard]] std::size_t row_scratch_floats(std::int64_t cols, std::int64_t tokens);

/// Tiles below which a second worker costs more than it brings.
[[nodiscard]] std::int64_t min_tiles_per_worker(std::int64_t cols, std::int64_t tokens);

/// One tile: decodes rows [begin, end), end - begin <= rows_per_tile(tokens), and leaves
/// products[(n - begin) * tokens + t], second-level scale applied, in the scratch. Returns that pointer.
[[nodiscard]] const float* multiply_tile(const vernier_isa::Kernels& kernels, const Weight& weight, std::int64_t begin,
                                         std::int64_t end, std::span<const float* const> x, float* scratch);

/// Calls emit(n, t, product) for rows [begin, end) of a weight and all tokens.
template <class Emit>  // NOLINTNEXTLINE(readability-function-size): the tile's bounds and its scratch belong apart
void multiply_rows(const vernier_isa::Kernels& kernels, const Weight& weight, std::int64_t begin, std::int64_t end,
                   std::span<const float* const> x, float* scratch, Emit emit) {
  const auto tokens = static_cast<std::int64_t>(x.size());
  const std::int64_t step = rows_per_tile(tokens);
  for (std::int64_t n = begin; n < end; n += step) {
    const std::int64_t tile_end = std::min(n + step, end);
    const float* products = multiply_tile(kernels, weight, n, tile_end, x, scratch);
    for (std::int64_t row = n; row < tile_end; ++row) {
      for (std::int64_t t = 0; t < tokens; ++t) emit(row, t, *products++);
    }
  }
}

}  // namespace vernier
