// Decodes rows of a Weight of any format and layout to floating-point numbers. Obvious rather than fast: fast kernels
// build on the same format headers.
#pragma once

#include <cstdint>

#include "tensor/weight.h"

namespace vernier {

/// Values of columns col_begin .. col_begin + count of a row, block scales included, the outer (second-level) scale
/// not. Any range within the row will do; blocks may be cut. `out` has room for `count` values. Reads only the bytes of
/// the blocks touched; safe from many threads.
///
/// The weight must have passed check_weight_shape() (format/validate.h). Should its layout be one that the format
/// doesn't have, every value is NaN.
///
/// float: the exact value rounded once (ggml types: the value that ggml's formula gives in fp32).
void decode_row(const Weight& weight, std::int64_t row, std::int64_t col_begin, std::int64_t count, float* out);

/// As decode_row(), but exact: code times scale in double (ggml types that round by definition: the float value).
void decode_row_f64(const Weight& weight, std::int64_t row, std::int64_t col_begin, std::int64_t count, double* out);

/// Bytes that the weight's codes and block scales take, gaps between rows not counted. A scale of a partial block, or
/// one shared with the rows of another view, counts whole.
[[nodiscard]] std::uint64_t storage_bytes(const Weight& weight);

}  // namespace vernier
