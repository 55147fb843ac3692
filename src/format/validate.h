// Checks on weights: that a Weight's description fits its format, and (reading every byte) that no block holds what a
// sound file never holds.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/result.h"
#include "tensor/weight.h"

namespace vernier {

/// The description alone, no weight bytes read: the layout exists, cols is a multiple of the block, strides hold a row,
/// separate scales have the dtype and block size that the format wants. `name` is the tensor's, for messages.
[[nodiscard]] Status check_weight_shape(const Weight& weight, std::string_view name);

/// The second-level factors: none, one or one a row; each finite and above zero; present where the format requires them
/// and absent where it has none.
[[nodiscard]] Status check_outer_scale(const Weight& weight, std::string_view name);

/// A factor that is legal but suggests that multiplier and divisor were mixed up: as a multiplier it is outside
/// 1e-12 .. 1e4. For a warning.
[[nodiscard]] bool outer_scale_is_unusual(const OuterScale& outer);

/// What a scan found. A block is the group of values under one block scale, or of an interleaved block without separate
/// scales; in formats without block scales every value is its own.
struct BlockScan {
  std::uint64_t bad_blocks = 0;
  std::int64_t row = 0;    ///< of the first bad block
  std::int64_t block = 0;  ///< its number within the row
  const char* what = "";   ///< what is wrong with it
};

/// Reads rows row_begin .. row_end and counts blocks with an illegal or non-finite scale, or a non-finite value.
/// Different row ranges may run on different threads.
[[nodiscard]] BlockScan scan_weight_blocks(const Weight& weight, std::int64_t row_begin, std::int64_t row_end);

/// Scans all rows; an error names the tensor, the first bad row and block, and the reason.
[[nodiscard]] Status check_weight_blocks(const Weight& weight, std::string_view name);

}  // namespace vernier
