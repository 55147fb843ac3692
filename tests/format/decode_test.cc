#include "format/decode.h"

#include <algorithm>
#include <cmath>

#include "format/golden.h"
#include "format/test_weights.h"

namespace vernier {
namespace {

using test::bytes_of;
using test::grid_weight;
using test::read_golden;
using test::same_bits;
using test::separate_weight;
using test::weight_over;

/// All rows of a weight must be `expected` in double, and those values rounded once in float; so must pieces of a row
/// that start and end anywhere.
void expect_values(const Weight& weight, const std::vector<double>& expected) {
  ASSERT_EQ(expected.size(), static_cast<std::size_t>(weight.rows * weight.cols));
  const auto cols = static_cast<std::size_t>(weight.cols);
  std::vector<float> floats(cols);
  std::vector<double> doubles(cols);
  for (std::int64_t row = 0; row < weight.rows; ++row) {
    const double* want = expected.data() + row * weight.cols;
    for (std::int64_t begin : {std::int64_t{0}, std::int64_t{1}, weight.cols / 3, weight.cols - 1}) {
      for (std::int64_t count :
           {weight.cols - begin, std::min<std::int64_t>(weight.cols - begin, 21), std::int64_t{0}}) {
        decode_row(weight, row, begin, count, floats.data());
        decode_row_f64(weight, row, begin, count, doubles.data());
        for (std::int64_t i = 0; i < count; ++i) {
          const double value = want[begin + i];
          ASSERT_TRUE(same_bits(doubles[static_cast<std::size_t>(i)], value)) << "row " << row << " col " << begin + i;
          ASSERT_TRUE(same_bits(floats[static_cast<std::size_t>(i)], static_cast<float>(value)))
              << "row " << row << " col " << begin + i;
        }
      }
    }
  }
}

class GgmlTypes : public ::testing::TestWithParam<const char*> {};

TEST_P(GgmlTypes, EqualTheReferenceToTheBit) {
  const std::string name = GetParam();
  const auto blocks = read_golden<std::byte>("ggml_" + name + ".blocks");
  const auto floats = read_golden<float>("ggml_" + name + ".f32");
  const FormatInfo& info = format_info(find_format(name).value());
  ASSERT_EQ(blocks.size(), 64u * static_cast<std::size_t>(info.block_bytes));
  ASSERT_EQ(floats.size(), 64u * static_cast<std::size_t>(info.block_values));
  // Two rows, so that blocks beyond a row's first and rows beyond the first are met.
  expect_values(weight_over(name, WeightLayout::kInterleaved, 2, 32 * info.block_values, blocks),
                {floats.begin(), floats.end()});
}

INSTANTIATE_TEST_SUITE_P(All, GgmlTypes,
                         ::testing::Values("q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "q2_k", "q3_k", "q4_k", "q5_k",
                                           "q6_k", "iq4_nl", "iq4_xs"));

struct TwoLayouts {
  const char* name;
  std::int64_t rows, cols;
};

class BothLayouts : public ::testing::TestWithParam<TwoLayouts> {};

TEST_P(BothLayouts, GiveEveryCodeUnderEveryScale) {
  const auto [name, rows, cols] = GetParam();
  const std::string prefix = name;
  const auto expected = read_golden<double>(prefix + ".f64");
  const auto interleaved = read_golden<std::byte>(prefix + ".interleaved");
  const auto codes = read_golden<std::byte>(prefix + ".codes");
  const auto scales = read_golden<std::byte>(prefix + ".scales");
  expect_values(weight_over(name, WeightLayout::kInterleaved, rows, cols, interleaved), expected);
  expect_values(separate_weight(name, rows, cols, codes, scales), expected);
}

/// A view of every other row, as of the halves of a fused matrix whose rows alternate.
TEST_P(BothLayouts, FollowRowStrides) {
  const auto [name, rows, cols] = GetParam();
  const std::string prefix = name;
  const auto all = read_golden<double>(prefix + ".f64");
  const auto codes = read_golden<std::byte>(prefix + ".codes");
  const auto scales = read_golden<std::byte>(prefix + ".scales");
  Weight odd = separate_weight(name, rows, cols, codes, scales);
  odd.codes += odd.row_stride;
  odd.scales += odd.scale_stride;
  odd.row_stride *= 2;
  odd.scale_stride *= 2;
  odd.rows /= 2;
  std::vector<double> expected;
  for (std::int64_t row = 1; row < rows; row += 2) {
    expected.insert(expected.end(), all.begin() + row * cols, all.begin() + (row + 1) * cols);
  }
  expect_values(odd, expected);
}

INSTANTIATE_TEST_SUITE_P(All, BothLayouts, ::testing::Values(TwoLayouts{"nvfp4", 4, 512}, TwoLayouts{"mxfp4", 8, 1024}),
                         [](const auto& test) { return test.param.name; });

struct Grid {
  const char* dtype;
  DType type;
};

class GridScales : public ::testing::TestWithParam<Grid> {
 protected:
  const std::vector<std::byte> codes_ = read_golden<std::byte>("fp8_grid.codes");
  const std::vector<std::byte> scales_ =
      read_golden<std::byte>(std::string("fp8_grid.") + GetParam().dtype + "_scales");
  const std::vector<double> values_ = read_golden<double>(std::string("fp8_grid_") + GetParam().dtype + ".f64");
  const Weight weight_ = grid_weight(70, 50, codes_, GetParam().type, scales_, 32, 16);
};

TEST_P(GridScales, CoverPartialTiles) { expect_values(weight_, values_); }

/// A part of a fused tensor that starts inside a tile still belongs to the tensor's grid.
TEST_P(GridScales, KeepTheOriginOfAView) {
  for (const std::int64_t first : {1, 31, 32, 33, 69}) {
    Weight view = weight_;
    view.first_row = first;
    view.rows = weight_.rows - first;
    view.codes += first * view.row_stride;
    expect_values(view, {values_.begin() + first * weight_.cols, values_.end()});
  }
}

INSTANTIATE_TEST_SUITE_P(All, GridScales,
                         ::testing::Values(Grid{"f32", DType::kF32}, Grid{"bf16", DType::kBF16},
                                           Grid{"e8m0", DType::kF8E8M0}),
                         [](const auto& test) { return test.param.dtype; });

TEST(PlainFormats, AreTheirElements) {
  const auto half = read_golden<float>("codec_f16.f32");
  const auto brain = read_golden<float>("codec_bf16.f32");
  std::vector<std::uint16_t> codes(65536);
  for (std::size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<std::uint16_t>(i);
  const auto bytes = bytes_of(codes);
  expect_values(weight_over("f16", WeightLayout::kPlain, 16, 4096, bytes), {half.begin(), half.end()});
  expect_values(weight_over("bf16", WeightLayout::kPlain, 16, 4096, bytes), {brain.begin(), brain.end()});
  const std::vector<float> numbers = {0.0f, -0.0f, 1.5f, 1e-45f, -3.4e38f, 0.1f};
  const auto number_bytes = bytes_of(numbers);
  expect_values(weight_over("f32", WeightLayout::kPlain, 2, 3, number_bytes), {numbers.begin(), numbers.end()});
}

TEST(PlainFormats, RowAndTensorScalesStayOutside) {
  const auto values = read_golden<float>("codec_e4m3.f32");
  std::vector<std::byte> codes(256);
  for (std::size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<std::byte>(i);
  for (const char* name : {"fp8-row", "fp8-tensor"}) {
    Weight weight = weight_over(name, WeightLayout::kPlain, 2, 128, codes);
    weight.outer.values = {3.0f};
    expect_values(weight, {values.begin(), values.end()});
  }
}

TEST(Decode, LayoutThatTheFormatLacksIsNotANumber) {
  const std::vector<std::byte> codes(64);
  Weight weight = weight_over("q8_0", WeightLayout::kInterleaved, 1, 32, codes);
  weight.layout = WeightLayout::kSeparate;
  float value = 0;
  decode_row(weight, 0, 0, 1, &value);
  EXPECT_TRUE(std::isnan(value));
}

TEST(StorageBytes, CountsCodesAndScales) {
  const std::vector<std::byte> none;
  EXPECT_EQ(storage_bytes(weight_over("nvfp4", WeightLayout::kInterleaved, 2, 64, none)), 72u);
  EXPECT_EQ(storage_bytes(separate_weight("nvfp4", 2, 64, none, none)), 2u * (32 + 4));
  EXPECT_EQ(storage_bytes(separate_weight("mxfp4", 3, 96, none, none)), 3u * (48 + 3));
  EXPECT_EQ(storage_bytes(weight_over("q6_k", WeightLayout::kInterleaved, 3, 512, none)), 3u * 2 * 210);
  EXPECT_EQ(storage_bytes(weight_over("bf16", WeightLayout::kPlain, 3, 5, none)), 30u);
  Weight grid = grid_weight(130, 200, none, DType::kBF16, none, 128, 128);
  EXPECT_EQ(storage_bytes(grid), 130u * 200 + 2 * 2 * 2);
  grid.first_row = 100;  // rows 100..229 touch two rows of the grid, rows 127..256 three
  EXPECT_EQ(storage_bytes(grid), 130u * 200 + 2 * 2 * 2);
  grid.first_row = 127;
  EXPECT_EQ(storage_bytes(grid), 130u * 200 + 3 * 2 * 2);
}

}  // namespace
}  // namespace vernier
