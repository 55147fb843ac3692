// Small blocks decoded by hand: byte order, nibble order and scale direction of each format.
#include <cmath>

#include "format/decode.h"
#include "format/golden.h"
#include "format/test_weights.h"

namespace vernier {
namespace {

using test::bytes_of;
using test::from_hex;
using test::grid_weight;
using test::separate_weight;
using test::weight_over;

std::vector<float> decode(const Weight& weight, std::int64_t row = 0) {
  std::vector<float> values(static_cast<std::size_t>(weight.cols));
  decode_row(weight, row, 0, weight.cols, values.data());
  return values;
}

std::vector<float> decode_block(std::string_view format, const std::vector<std::byte>& block) {
  const FormatInfo& info = format_info(find_format(format).value());
  EXPECT_EQ(block.size(), static_cast<std::size_t>(info.block_bytes));
  return decode(weight_over(format, WeightLayout::kInterleaved, 1, info.block_values, block));
}

/// A block that is zero but for the bytes given: pairs of offset and value.
std::vector<std::byte> sparse_block(std::size_t size, std::initializer_list<std::pair<std::size_t, int>> bytes) {
  std::vector<std::byte> block(size);
  for (const auto& [offset, value] : bytes) block[offset] = static_cast<std::byte>(value);
  return block;
}

const std::vector<float> kE2M1 = {0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0f, -0.5, -1, -1.5, -2, -3, -4, -6};

TEST(WorkedExamples, Mxfp4Interleaved) {
  const auto values = decode_block("mxfp4", from_hex("80 00112233445566778899AABBCCDDEEFF"));
  for (std::size_t i = 0; i < 32; ++i) EXPECT_EQ(values[i], 2 * kE2M1[i % 16]) << i;
}

TEST(WorkedExamples, Nvfp4Interleaved) {
  const std::string codes = "1032547698BADCFE";
  const auto values = decode_block("nvfp4", from_hex("38407E01" + codes + codes + codes + codes));
  const std::vector<float> group = {0,   1,   2, 4, -0.0f, -1,   -2, -4,  //
                                    0.5, 1.5, 3, 6, -0.5,  -1.5, -3, -6};
  const float scales[] = {1, 2, 448, 0x1p-9f};
  for (std::size_t i = 0; i < 64; ++i) {
    EXPECT_TRUE(test::same_bits(values[i], group[i % 16] * scales[i / 16])) << i;
  }
  EXPECT_EQ(values[43], 2688.0f);
  EXPECT_EQ(values[50], 0.00390625f);  // code 4
  EXPECT_EQ(values[59], 0.01171875f);  // code 7
}

// The same sixteen values in the order of nibbles that safetensors use and repacked to ggml's.
TEST(WorkedExamples, RepackingKeepsValues) {
  const auto scales = from_hex("40384048");
  const auto pairs = from_hex("1032547698BADCFE 1032547698BADCFE 1032547698BADCFE 1032547698BADCFE");
  const auto halves = from_hex("40384048 8091A2B3C4D5E6F7 8091A2B3C4D5E6F7 8091A2B3C4D5E6F7 8091A2B3C4D5E6F7");
  const auto separate = decode(separate_weight("nvfp4", 1, 64, pairs, scales));
  EXPECT_EQ(separate, decode_block("nvfp4", halves));
  for (std::size_t i = 0; i < 16; ++i) EXPECT_EQ(separate[i], 2 * kE2M1[i]) << i;

  const auto scale = from_hex("80");
  const auto pairs32 = from_hex("1032547698BADCFE1032547698BADCFE");
  EXPECT_EQ(decode(separate_weight("mxfp4", 1, 32, pairs32, scale)),
            decode_block("mxfp4", from_hex("80 00112233445566778899AABBCCDDEEFF")));
}

// The second-level scale multiplies in one dialect and divides in the other; both are applied to the finished product.
TEST(WorkedExamples, SecondLevelScaleOfBothDialects) {
  const auto codes = from_hex("1032547698BADCFE");
  const auto scales = from_hex("40");
  Weight weight = separate_weight("nvfp4", 1, 16, codes, scales);
  weight.outer.values = {F32Codec::decode(0x3A83126F)};  // 0.001f
  const auto values = decode(weight);
  EXPECT_EQ(values[7], 12.0f);
  EXPECT_EQ(weight.outer.apply(values[7], 0), 12.0f * 0.001f);
  EXPECT_EQ(weight.outer.apply(values[1], 0), 0.001f);
  weight.outer.values = {F32Codec::decode(0x447A0000)};  // 1000
  weight.outer.divides = true;
  EXPECT_EQ(weight.outer.apply(values[7], 0), 12.0f / 1000.0f);
}

TEST(WorkedExamples, LegacyBlocks) {
  const auto q8 = decode_block("q8_0", sparse_block(34, {{1, 0x34}, {2, 1}, {3, 0xFF}, {4, 0x7F}, {5, 0x80}}));
  EXPECT_EQ((std::vector<float>{q8[0], q8[1], q8[2], q8[3]}), (std::vector<float>{0.25f, -0.25f, 31.75f, -32.0f}));
  const auto q40 = decode_block("q4_0", sparse_block(18, {{1, 0x3C}, {2, 0x9F}}));
  EXPECT_EQ(q40[0], 7.0f);
  EXPECT_EQ(q40[16], 1.0f);
  EXPECT_EQ(q40[1], -8.0f);
  const auto q41 = decode_block("q4_1", sparse_block(20, {{1, 0x38}, {3, 0xBC}, {4, 0x42}}));
  EXPECT_EQ(q41[0], 0.0f);
  EXPECT_EQ(q41[16], 1.0f);
  const auto q50 = decode_block("q5_0", sparse_block(22, {{1, 0x3C}, {2, 1}, {4, 1}, {6, 0x10}}));
  EXPECT_EQ(q50[0], 0.0f);
  EXPECT_EQ(q50[16], 1.0f);
  const auto q51 = decode_block("q5_1", sparse_block(24, {{1, 0x3C}, {3, 0xBC}, {4, 1}, {6, 1}, {8, 0x10}}));
  EXPECT_EQ(q51[0], 15.0f);
  EXPECT_EQ(q51[16], 16.0f);
}

TEST(WorkedExamples, KBlocks) {
  const auto q4k = decode_block(
      "q4_k", sparse_block(144, {{1, 0x3C}, {3, 0x38}, {4, 0x43}, {8, 0x82}, {12, 0x65}, {16, 0x07}, {80, 0x0B}}));
  EXPECT_EQ(q4k[0], 20.0f);
  EXPECT_EQ(q4k[128], 212.0f);
  const auto q5k = decode_block(
      "q5_k",
      sparse_block(176, {{1, 0x3C}, {3, 0x38}, {4, 0x43}, {8, 0x82}, {12, 0x65}, {16, 0x11}, {48, 0x07}, {112, 0x0B}}));
  EXPECT_EQ(q5k[0], 68.0f);
  EXPECT_EQ(q5k[128], 548.0f);
  const auto q6k = decode_block(
      "q6_k",
      sparse_block(210, {{0, 0x5A}, {32, 0x5C}, {128, 0xE4}, {192, 2}, {194, 0xFF}, {196, 3}, {198, 1}, {209, 0x38}}));
  EXPECT_EQ((std::vector<float>{q6k[0], q6k[32], q6k[64], q6k[96]}), (std::vector<float>{-22.0f, 2.0f, 7.5f, 10.5f}));
}

// 130 x 200 under a 2 x 2 grid of 128 x 128 tiles: both edges are partial, and the scale multiplies.
TEST(WorkedExamples, Fp8TilesWithPartialEdges) {
  std::vector<std::byte> codes(130 * 200);
  codes[129 * 200 + 150] = std::byte{0x38};
  codes[127 * 200 + 150] = std::byte{0x38};
  codes[127 * 200 + 127] = std::byte{0x38};
  const auto scales = bytes_of(std::vector<std::uint16_t>{0x3F00, 0x3E80, 0x4000, 0x4080});  // 0.5 0.25 / 2 4
  const Weight weight = grid_weight(130, 200, codes, DType::kBF16, scales, 128, 128);
  EXPECT_EQ(decode(weight, 129)[150], 4.0f);
  EXPECT_EQ(decode(weight, 127)[150], 0.25f);
  EXPECT_EQ(decode(weight, 127)[127], 0.5f);
}

// A scale that isn't a power of two must not be treated as one.
TEST(WorkedExamples, Fp8ScaleIsUsedAsItIs) {
  const std::vector<std::byte> codes(1, std::byte{0x38});
  const auto scales = bytes_of(std::vector<float>{0.75f});
  EXPECT_EQ(decode(grid_weight(1, 1, codes, DType::kF32, scales, 128, 128))[0], 0.75f);
}

// Three parts of 160 rows fused, each with its own scale for each of its tiles of 128: parts keep their own origin.
TEST(WorkedExamples, Fp8FusedPartsKeepTheirOwnTiles) {
  const std::vector<std::byte> codes(480, std::byte{0x38});
  const auto scales = bytes_of(std::vector<float>{1, 2, 3, 4, 5, 6});
  for (std::int64_t part = 0; part < 3; ++part) {
    Weight weight = grid_weight(160, 1, codes, DType::kF32, scales, 128, 128);
    weight.codes += part * 160;
    weight.scales += part * 2 * weight.scale_stride;
    EXPECT_EQ(decode(weight, 127)[0], static_cast<float>(2 * part + 1));
    EXPECT_EQ(decode(weight, 128)[0], static_cast<float>(2 * part + 2));
  }
}

}  // namespace
}  // namespace vernier
