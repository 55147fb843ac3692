// Which rows are read at a time, and what is asked of memory meanwhile. See kernels.h for the contract and this
// folder's rules.
#pragma once

#include "backend/cpu/isa/kernels.h"
#include "backend/cpu/isa/sources_impl.h"

namespace {

using vernier_isa::FewProducts;

/// Rows that are read side by side, and how far behind a place in them lies what is to be asked for there.
template <int kRows>
struct RowsAtOnce {
  std::int64_t row[kRows];
  std::int64_t ahead;
};

/// How many rows ahead memory is asked for, a multiple of kRows. What lies between takes longer to multiply than memory
/// to answer while all cores ask, and no less than the rows that come next but one.
template <int kRows>
std::int64_t rows_ahead(const WeightRows& rows) {
  constexpr std::int64_t kBytes = 4096;
  if (rows.row_stride <= 0) return 2 * kRows;
  const std::int64_t enough = (kBytes / rows.row_stride + kRows) / kRows * kRows;
  return enough > 2 * kRows ? enough : 2 * kRows;
}

/// The rows from `row` on; the last one stands in for missing ones. Asks for scales `far` rows ahead.
template <int kRows>
RowsAtOnce<kRows> take_rows(const FewProducts& args, std::int64_t row, std::int64_t far) {
  const WeightRows& rows = args.rows;
  RowsAtOnce<kRows> taken;
  for (int r = 0; r < kRows; ++r) taken.row[r] = row + r < args.end ? row + r : args.end - 1;
  const bool are_long = kRows * rows.row_stride >= 16384;
  taken.ahead = are_long ? 2048 : far * rows.row_stride;
  const std::byte* scales = rows.scales != nullptr ? row_scales(rows, row + far) : nullptr;
  if (row + far >= args.end && args.coming.codes != nullptr) {
    if (!are_long) taken.ahead += args.coming.codes - (rows.codes + args.end * rows.row_stride);
    if (scales != nullptr) scales += args.coming.scales - row_scales(rows, args.end);
  }
  const std::int64_t scale_bytes = rows.scale_block_rows == 1 ? kRows * rows.scale_stride : 0;
  for (std::int64_t line = 0; line < scale_bytes; line += 64) Lanes::prefetch(scales + line);
  return taken;
}

}  // namespace
