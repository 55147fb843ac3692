#include "backend/packed_weight.h"

#include <cstring>

#include "format/format_list.h"
#include "format/grid_scale.h"

namespace vernier {
namespace {

/// The parts of a record: rows of codes, then rows of scales.
struct Parts {
  std::int64_t code_row_bytes = 0;
  std::int64_t num_scale_rows = 0;
  std::int64_t scale_row_bytes = 0;

  [[nodiscard]] std::uint64_t code_bytes(std::int64_t rows) const {
    return align_record(static_cast<std::uint64_t>(rows * code_row_bytes));
  }
};

Parts parts_of(const Weight& weight) {
  const FormatInfo& info = format_info(weight.format);
  Parts parts;
  parts.code_row_bytes = info.row_bytes(weight.layout, weight.cols).value_or(0);
  if (weight.layout != WeightLayout::kSeparate || weight.rows == 0) return parts;
  const std::int64_t first = weight.first_row / weight.scale_block_rows;
  parts.num_scale_rows = (weight.first_row + weight.rows - 1) / weight.scale_block_rows - first + 1;
  const DType dtype = info.has_grid ? weight.scale_dtype : info.scale_dtype;
  parts.scale_row_bytes = scales_per_row(weight) * (dtype_bits(dtype) / 8);
  return parts;
}

}  // namespace

std::uint64_t stored_bytes(const Weight& host) {
  const Parts parts = parts_of(host);
  return parts.code_bytes(host.rows) +
         align_record(static_cast<std::uint64_t>(parts.num_scale_rows * parts.scale_row_bytes));
}

Weight pack_as_stored(const Weight& host, std::byte* to) {
  const Parts parts = parts_of(host);
  for (std::int64_t r = 0; r < host.rows; ++r) {
    std::memcpy(to + r * parts.code_row_bytes, host.row_codes(r), static_cast<std::size_t>(parts.code_row_bytes));
  }
  Weight packed = host;
  packed.owner = nullptr;
  packed.codes = to;
  packed.row_stride = parts.code_row_bytes;
  if (parts.num_scale_rows == 0) return packed;
  std::byte* const scales = to + parts.code_bytes(host.rows);
  for (std::int64_t g = 0; g < parts.num_scale_rows; ++g) {
    std::memcpy(scales + g * parts.scale_row_bytes, host.row_scales(0) + g * host.scale_stride,
                static_cast<std::size_t>(parts.scale_row_bytes));
  }
  packed.scales = scales;
  packed.scale_stride = parts.scale_row_bytes;
  packed.first_row = host.first_row % host.scale_block_rows;
  return packed;
}

Weight moved_weight(Weight weight, const std::byte* from, const std::byte* to) {
  weight.codes = to + (weight.codes - from);
  if (weight.scales != nullptr) weight.scales = to + (weight.scales - from);
  return weight;
}

}  // namespace vernier
