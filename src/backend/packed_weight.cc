#include "backend/packed_weight.h"

#include <cstring>

#include "format/stored_rows.h"

namespace vernier {
namespace {

std::uint64_t record_size(const StoredRows& rows) { return align_record(static_cast<std::uint64_t>(rows.size())); }

void copy_rows(const StoredRows& from, std::byte* to) {
  for (std::int64_t r = 0; r < from.rows; ++r) {
    std::memcpy(to + r * from.row_bytes, from.data + r * from.stride, static_cast<std::size_t>(from.row_bytes));
  }
}

}  // namespace

std::uint64_t stored_bytes(const Weight& host) { return record_size(code_rows(host)) + record_size(scale_rows(host)); }

Weight pack_as_stored(const Weight& host, std::byte* to) {
  const StoredRows codes = code_rows(host);
  const StoredRows scales = scale_rows(host);
  copy_rows(codes, to);
  Weight packed = host;
  packed.owner = nullptr;
  packed.codes = to;
  packed.row_stride = codes.row_bytes;
  if (scales.rows == 0) return packed;
  std::byte* const scales_at = to + record_size(codes);
  copy_rows(scales, scales_at);
  packed.scales = scales_at;
  packed.scale_stride = scales.row_bytes;
  packed.first_row = host.first_row % host.scale_block_rows;
  return packed;
}

Weight moved_weight(Weight weight, const std::byte* from, const std::byte* to) {
  weight.codes = to + (weight.codes - from);
  if (weight.scales != nullptr) weight.scales = to + (weight.scales - from);
  return weight;
}

}  // namespace vernier
