#include "backend/packed_weight.h"

#include <gtest/gtest.h>

#include <cstring>

#include "format/decode.h"
#include "support/random_weight.h"

namespace vernier::test {
namespace {

void expect_same_values(const Weight& a, const Weight& b) {
  std::vector<double> row_a(static_cast<std::size_t>(a.cols));
  std::vector<double> row_b(row_a.size());
  for (std::int64_t r = 0; r < a.rows; ++r) {
    decode_row_f64(a, r, 0, a.cols, row_a.data());
    decode_row_f64(b, r, 0, b.cols, row_b.data());
    ASSERT_EQ(std::memcmp(row_a.data(), row_b.data(), row_a.size() * sizeof(double)), 0) << "row " << r;
  }
}

TEST(PackedWeight, KeepsEveryValueOfEveryFormatWhereverItIsMoved) {
  for (const FormatCase& format : all_format_cases()) {
    for (const std::int64_t rows : {1, 5, 130}) {
      WeightSpec spec = {.format = format.format,
                         .layout = format.layout,
                         .rows = rows,
                         .cols = format.cols_multiple == 1 ? 300 : 2 * format.cols_multiple};
      const Weight host = random_weight(spec);
      const std::uint64_t size = stored_bytes(host);
      EXPECT_EQ(size % kRecordAlignment, 0U);
      std::vector<std::byte> record(size + 2, std::byte{0x5A});
      const Weight packed = pack_as_stored(host, record.data());
      EXPECT_EQ(record[size], std::byte{0x5A}) << format.name << " wrote behind its record";
      expect_same_values(host, packed);
      const std::vector<std::byte> copy(record);
      std::memset(record.data(), 0, record.size());
      expect_same_values(host, moved_weight(packed, record.data(), copy.data()));
      if (HasFatalFailure()) return;
    }
  }
}

// A view into a tensor with a grid of scales: its first row lies inside a block.
TEST(PackedWeight, KeepsTheOriginOfAGrid) {
  for (const FormatCase& format : all_format_cases()) {
    WeightSpec spec = {.format = format.format,
                       .layout = format.layout,
                       .rows = 300,
                       .cols = format.cols_multiple == 1 ? 300 : format.cols_multiple};
    const Weight whole = random_weight(spec);
    if (whole.layout != WeightLayout::kSeparate || whole.scale_block_rows == 1) continue;
    Weight part = whole;
    part.codes = whole.row_codes(200);
    part.first_row = whole.first_row + 200;
    part.rows = 90;
    part.outer = {};
    std::vector<std::byte> record(stored_bytes(part));
    EXPECT_LT(record.size(), stored_bytes(whole));
    expect_same_values(part, pack_as_stored(part, record.data()));
    if (HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace vernier::test
