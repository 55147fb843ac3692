// Random weights of every format and layout are valid, and spread as promised.
#include "bench/random_blocks.h"

#include <gtest/gtest.h>

#include <cmath>

#include "format/decode.h"
#include "format/format_list.h"
#include "format/validate.h"

namespace vernier::bench {
namespace {

constexpr std::int64_t kRows = 256;
constexpr std::int64_t kCols = 1024;

struct Made {
  std::vector<std::byte> codes;
  std::vector<std::byte> scales;
  Weight weight;
};

Made make(FormatId format, WeightLayout layout) {
  const FormatInfo& info = format_info(format);
  const BlockTile tile = make_tile(format, layout, kCols, 5);
  Made made;
  Weight& weight = made.weight;
  weight.format = format;
  weight.layout = layout;
  weight.rows = kRows;
  weight.cols = kCols;
  weight.row_stride = *info.row_bytes(layout, kCols);
  made.codes.resize(static_cast<std::size_t>(kRows * weight.row_stride));
  fill_from_tile(tile.codes, tile.code_unit, 9, made.codes.data(), made.codes.size());
  if (layout == WeightLayout::kSeparate) {
    weight.scale_dtype = info.scale_dtype;
    weight.scale_block_rows = info.has_grid ? 128 : 1;
    weight.scale_block_cols = info.has_grid ? 128 : info.scale_values;
    weight.scale_stride = kCols / weight.scale_block_cols * static_cast<std::int64_t>(dtype_bits(info.scale_dtype) / 8);
    made.scales.resize(static_cast<std::size_t>(kRows / weight.scale_block_rows * weight.scale_stride));
    fill_from_tile(tile.scales, tile.scale_unit, 9, made.scales.data(), made.scales.size());
  }
  if (info.outer_scale != OuterScaleUse::kNone) weight.outer.values = {tile.outer};
  weight.codes = made.codes.data();
  weight.scales = made.scales.data();
  return made;
}

TEST(RandomBlocks, AreValidAndSpreadAsOneByRootOfTheRow) {
  for (std::size_t i = 0; i < kFormats.size(); ++i) {
    for (const WeightLayout layout : {WeightLayout::kPlain, WeightLayout::kInterleaved, WeightLayout::kSeparate}) {
      if (!kFormats[i].has_layout(layout)) continue;
      const Made made = make(static_cast<FormatId>(i), layout);
      const std::string_view name = kFormats[i].name;
      EXPECT_TRUE(check_weight_shape(made.weight, name).has_value());
      EXPECT_TRUE(check_outer_scale(made.weight, name).has_value());
      EXPECT_TRUE(check_weight_blocks(made.weight, name).has_value());
      double sum = 0.0;
      double squares = 0.0;
      std::vector<float> row(kCols);
      for (std::int64_t r = 0; r < kRows; ++r) {
        decode_row(made.weight, r, 0, kCols, row.data());
        for (const float value : row) {
          const double scaled = made.weight.outer.apply(value, r);
          sum += scaled;
          squares += scaled * scaled;
        }
      }
      const double count = kRows * kCols;
      const double target = 1.0 / std::sqrt(static_cast<double>(kCols));
      EXPECT_NEAR(std::sqrt(squares / count) / target, 1.0, 0.45) << name;  // exponents are powers of two
      EXPECT_LT(std::abs(sum / count), 0.15 * target) << name;
    }
  }
}

TEST(RandomBlocks, DependOnTheSeedAlone) {
  const BlockTile one = make_tile(*find_format("q4_0"), WeightLayout::kInterleaved, 64, 1);
  EXPECT_EQ(one.codes, make_tile(*find_format("q4_0"), WeightLayout::kInterleaved, 64, 1).codes);
  EXPECT_NE(one.codes, make_tile(*find_format("q4_0"), WeightLayout::kInterleaved, 64, 2).codes);
}

}  // namespace
}  // namespace vernier::bench
