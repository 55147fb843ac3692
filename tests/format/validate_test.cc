#include "format/validate.h"

#include <cmath>
#include <limits>

#include "format/golden.h"
#include "format/test_weights.h"

namespace vernier {
namespace {

using test::bytes_of;
using test::grid_weight;
using test::read_golden;
using test::separate_weight;
using test::weight_over;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
const float kNan = std::numeric_limits<float>::quiet_NaN();

/// The message of a failed check must contain all of `parts`.
void expect_refused(const Status& status, std::initializer_list<const char*> parts) {
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kCorrupt);
  for (const char* part : parts) {
    EXPECT_NE(status.error().message.find(part), std::string::npos) << part << " in: " << status.error().message;
  }
}

void expect_sound(const Weight& weight) {
  const Status shape = check_weight_shape(weight, "w");
  EXPECT_TRUE(shape) << shape.error().message;
  const Status blocks = check_weight_blocks(weight, "w");
  EXPECT_TRUE(blocks) << blocks.error().message;
}

TEST(WeightBlocks, GoldenWeightsAreSound) {
  for (const char* name :
       {"q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "q2_k", "q3_k", "q4_k", "q5_k", "q6_k", "iq4_nl", "iq4_xs"}) {
    const auto blocks = read_golden<std::byte>(std::string("ggml_") + name + ".blocks");
    const std::int32_t values = format_info(find_format(name).value()).block_values;
    expect_sound(weight_over(name, WeightLayout::kInterleaved, 2, 32 * values, blocks));
  }
  const auto interleaved = read_golden<std::byte>("nvfp4.interleaved");
  const auto codes = read_golden<std::byte>("nvfp4.codes");
  const auto scales = read_golden<std::byte>("nvfp4.scales");
  expect_sound(weight_over("nvfp4", WeightLayout::kInterleaved, 4, 512, interleaved));
  expect_sound(separate_weight("nvfp4", 4, 512, codes, scales));
  const auto tiles = read_golden<std::byte>("fp8_grid.codes");
  const auto grid = read_golden<std::byte>("fp8_grid.f32_scales");
  expect_sound(grid_weight(70, 50, tiles, DType::kF32, grid, 32, 16));
}

TEST(WeightBlocks, Nvfp4ScalesAreFiniteAndUnsigned) {
  for (int byte = 0; byte < 256; ++byte) {
    std::vector<std::byte> codes(3 * 32), scales(3 * 4), blocks(3 * 36);
    scales[2 * 4 + 3] = static_cast<std::byte>(byte);
    blocks[2 * 36 + 3] = static_cast<std::byte>(byte);
    for (const Weight& weight : {separate_weight("nvfp4", 3, 64, codes, scales),
                                 weight_over("nvfp4", WeightLayout::kInterleaved, 3, 64, blocks)}) {
      const Status status = check_weight_blocks(weight, "blk.0.w");
      if (byte < 0x7F) {
        EXPECT_TRUE(status) << byte;
      } else {
        expect_refused(status, {"blk.0.w", "nvfp4", "row 2", "block 3", "scale"});
      }
    }
  }
}

TEST(WeightBlocks, Mxfp4ScaleMayBeAnythingButNan) {
  for (int byte = 0; byte < 256; ++byte) {
    std::vector<std::byte> codes(32), scales(2), blocks(34);  // all codes zero
    scales[1] = static_cast<std::byte>(byte);
    blocks[17] = static_cast<std::byte>(byte);
    for (const Weight& weight : {separate_weight("mxfp4", 1, 64, codes, scales),
                                 weight_over("mxfp4", WeightLayout::kInterleaved, 1, 64, blocks)}) {
      const Status status = check_weight_blocks(weight, "w");
      if (byte < 0xFF) {
        EXPECT_TRUE(status) << byte;
      } else {
        expect_refused(status, {"mxfp4", "row 0", "block 1", "scale"});
      }
    }
  }
}

TEST(WeightBlocks, ValuesThatOverflowAreRefused) {
  std::vector<std::byte> codes(16), scales(1);
  const Weight weight = separate_weight("mxfp4", 1, 32, codes, scales);
  const auto check = [&](int scale, int code) {
    scales[0] = static_cast<std::byte>(scale);
    codes[7] = static_cast<std::byte>(code);
    return check_weight_blocks(weight, "w").has_value();
  };
  EXPECT_TRUE(check(254, 3));   // 1.5 * 2^127
  EXPECT_FALSE(check(254, 4));  // 2 * 2^127
  EXPECT_TRUE(check(253, 5));   // 3 * 2^126
  EXPECT_FALSE(check(253, 6));  // 4 * 2^126
  EXPECT_FALSE(check(253, 0xF0));
  EXPECT_TRUE(check(252, 7));
}

TEST(WeightBlocks, GridScalesAreFiniteAndPositive) {
  const std::vector<std::byte> codes(4 * 3, std::byte{0x38});
  for (const float bad : {0.0f, -0.0f, -1.0f, kInfinity, kNan, 1e37f}) {
    const auto f32 = bytes_of(std::vector<float>{1, 1, 1, bad});
    expect_refused(check_weight_blocks(grid_weight(4, 3, codes, DType::kF32, f32, 2, 2), "w"),
                   {"fp8-block", "row 2", "block 1"});
    const std::uint16_t bits = BF16Codec::encode(bad);
    const auto bf16 = bytes_of(std::vector<std::uint16_t>{0x3F80, bits, 0x3F80, 0x3F80});
    expect_refused(check_weight_blocks(grid_weight(4, 3, codes, DType::kBF16, bf16, 2, 2), "w"), {"row 0", "block 1"});
  }
  const auto e8m0 = test::from_hex("00 7F 7F FF");
  expect_refused(check_weight_blocks(grid_weight(4, 3, codes, DType::kF8E8M0, e8m0, 2, 2), "w"), {"row 2", "block 1"});
}

TEST(WeightBlocks, NanCodesAreRefusedInFp8) {
  for (const int byte : {0x7F, 0xFF}) {
    std::vector<std::byte> codes(6, std::byte{0x7E});
    codes[5] = static_cast<std::byte>(byte);
    for (const char* name : {"fp8-row", "fp8-tensor"}) {
      expect_refused(check_weight_blocks(weight_over(name, WeightLayout::kPlain, 2, 3, codes), "w"),
                     {name, "row 1", "block 2", "value"});
    }
    const auto scales = bytes_of(std::vector<float>{1});
    expect_refused(check_weight_blocks(grid_weight(2, 3, codes, DType::kF32, scales, 128, 128), "w"),
                   {"row 1", "block 0", "value"});
  }
}

TEST(WeightBlocks, PlainValuesAreFinite) {
  for (const float bad : {kInfinity, -kInfinity, kNan}) {
    const auto f32 = bytes_of(std::vector<float>{1, 2, 3, bad});
    expect_refused(check_weight_blocks(weight_over("f32", WeightLayout::kPlain, 2, 2, f32), "w"), {"row 1", "block 1"});
    const auto f16 = bytes_of(std::vector<std::uint16_t>{F16Codec::encode(bad), 0});
    expect_refused(check_weight_blocks(weight_over("f16", WeightLayout::kPlain, 1, 2, f16), "w"), {"row 0", "block 0"});
    const auto bf16 = bytes_of(std::vector<std::uint16_t>{0, BF16Codec::encode(bad)});
    expect_refused(check_weight_blocks(weight_over("bf16", WeightLayout::kPlain, 1, 2, bf16), "w"), {"block 1"});
  }
}

TEST(WeightBlocks, EveryF16OfAGgmlBlockIsChecked) {
  struct Row {
    const char* name;
    std::vector<std::size_t> offsets;
  };
  for (const Row& row : {Row{"q4_0", {0}}, Row{"q4_1", {0, 2}}, Row{"q5_0", {0}}, Row{"q5_1", {0, 2}}, Row{"q8_0", {0}},
                         Row{"q2_k", {80, 82}}, Row{"q3_k", {108}}, Row{"q4_k", {0, 2}}, Row{"q5_k", {0, 2}},
                         Row{"q6_k", {208}}, Row{"iq4_nl", {0}}, Row{"iq4_xs", {0}}}) {
    const FormatInfo& info = format_info(find_format(row.name).value());
    for (const std::size_t offset : row.offsets) {
      for (const int high : {0x7C, 0xFC, 0x7E}) {
        std::vector<std::byte> blocks(static_cast<std::size_t>(2 * info.block_bytes));
        blocks[static_cast<std::size_t>(info.block_bytes) + offset + 1] = static_cast<std::byte>(high);
        expect_refused(check_weight_blocks(
                           weight_over(row.name, WeightLayout::kInterleaved, 1, 2 * info.block_values, blocks), "w"),
                       {row.name, "row 0", "block 1", "scale"});
      }
    }
  }
}

TEST(WeightBlocks, ScanCountsWithinARangeOfRows) {
  std::vector<std::byte> codes(4 * 32), scales(4 * 4);
  scales[1] = scales[5] = scales[6] = scales[14] = std::byte{0x7F};
  const Weight weight = separate_weight("nvfp4", 4, 64, codes, scales);
  EXPECT_EQ(scan_weight_blocks(weight, 0, 4).bad_blocks, 4u);
  const BlockScan middle = scan_weight_blocks(weight, 1, 3);
  EXPECT_EQ(middle.bad_blocks, 2u);
  EXPECT_EQ(middle.row, 1);
  EXPECT_EQ(middle.block, 1);
  EXPECT_EQ(scan_weight_blocks(weight, 2, 3).bad_blocks, 0u);
}

TEST(WeightBlocks, NamesAreEscaped) {
  std::vector<std::byte> codes(8), scales(1, std::byte{0xFF});
  expect_refused(check_weight_blocks(separate_weight("nvfp4", 1, 16, codes, scales), "a\nb"), {"a\\nb"});
}

TEST(OuterScale, MustBeFiniteAndPositive) {
  const std::vector<std::byte> codes(3 * 4);
  Weight weight = weight_over("fp8-row", WeightLayout::kPlain, 3, 4, codes);
  weight.outer.values = {1, 2, 3};
  EXPECT_TRUE(check_outer_scale(weight, "w"));
  weight.outer.values = {1e-45f};
  EXPECT_TRUE(check_outer_scale(weight, "w"));
  for (const float bad : {0.0f, -0.0f, -2.0f, kInfinity, -kInfinity, kNan}) {
    weight.outer.values = {1, bad, 3};
    expect_refused(check_outer_scale(weight, "w"), {"'w'", "scale 1 is", "above zero"});
  }
  weight.outer.values = {1, 2};
  expect_refused(check_outer_scale(weight, "w"), {"2 second-level scales", "3 rows"});
  weight.outer.values = {};
  expect_refused(check_outer_scale(weight, "w"), {"fp8-row needs a scale"});
}

TEST(OuterScale, OnlyWhereTheFormatHasOne) {
  const std::vector<std::byte> codes(64);
  Weight weight = weight_over("nvfp4", WeightLayout::kInterleaved, 1, 64, codes);
  EXPECT_TRUE(check_outer_scale(weight, "w"));
  weight.outer.values = {0.5f};
  EXPECT_TRUE(check_outer_scale(weight, "w"));
  weight = weight_over("q8_0", WeightLayout::kInterleaved, 1, 32, codes);
  weight.outer.values = {0.5f};
  expect_refused(check_outer_scale(weight, "w"), {"q8_0 has no second-level scale"});
}

TEST(OuterScale, UnusualSizes) {
  EXPECT_FALSE(outer_scale_is_unusual({}));
  EXPECT_FALSE(outer_scale_is_unusual({{0.001f}, false}));
  EXPECT_FALSE(outer_scale_is_unusual({{20000.0f}, true}));
  EXPECT_TRUE(outer_scale_is_unusual({{20000.0f}, false}));
  EXPECT_TRUE(outer_scale_is_unusual({{1.0f, 1e-5f}, true}));
  EXPECT_TRUE(outer_scale_is_unusual({{1e-13f}, false}));
}

TEST(WeightShape, DescriptionsThatDontFitAreRefused) {
  const std::vector<std::byte> codes(256), scales(64);
  const Weight good = separate_weight("nvfp4", 2, 64, codes, scales);
  ASSERT_TRUE(check_weight_shape(good, "w"));
  const auto expect = [&](void (*damage)(Weight&), const char* part) {
    Weight weight = good;
    damage(weight);
    const Status status = check_weight_shape(weight, "w");
    ASSERT_FALSE(status) << part;
    EXPECT_NE(status.error().message.find(part), std::string::npos) << status.error().message;
  };
  expect([](Weight& w) { w.layout = WeightLayout::kPlain; }, "no layout");
  expect([](Weight& w) { w.codes = nullptr; }, "no data");
  expect([](Weight& w) { w.rows = 0; }, "no data");
  expect([](Weight& w) { w.cols = 72; }, "multiple of 16");
  expect([](Weight& w) { w.cols = -64; }, "multiple of 16");
  expect([](Weight& w) { w.row_stride = 31; }, "a row has 32");
  expect([](Weight& w) { w.scales = nullptr; }, "needs block scales");
  expect([](Weight& w) { w.scale_dtype = DType::kU8; }, "expected F8_E4M3");
  expect([](Weight& w) { w.scale_block_cols = 32; }, "1 x 32");
  expect([](Weight& w) { w.scale_block_rows = 128; }, "128 x 16");
  expect([](Weight& w) { w.scale_stride = 3; }, "a row has 4");
  Weight grid = grid_weight(2, 3, codes, DType::kF32, scales, 128, 128);
  ASSERT_TRUE(check_weight_shape(grid, "w"));
  grid.scale_dtype = DType::kF16;
  expect_refused(check_weight_shape(grid, "w"), {"F16", "expected F32, BF16 or F8_E8M0"});
  grid.scale_dtype = DType::kF32;
  grid.scale_block_cols = 0;
  expect_refused(check_weight_shape(grid, "w"), {"128 x 0"});
}

}  // namespace
}  // namespace vernier
