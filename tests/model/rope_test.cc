// Frequencies against values that were worked out independently (Hugging Face's formulas in Python, published figures).
#include "model/rope.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace vernier {
namespace {

void expect_relative(double value, double expected, double tolerance = 1e-6) {
  EXPECT_NEAR(value / expected, 1.0, tolerance) << value << " for " << expected;
}

RopeTable build(const RopeConfig& rope, std::int64_t head_dim, std::span<const float> divisors = {}) {
  auto table = build_rope(rope, head_dim, divisors);
  EXPECT_TRUE(table) << (table ? "" : table.error().message);
  return table ? *std::move(table) : RopeTable{};
}

RopeConfig llama3(double factor, std::int64_t dims) {
  RopeConfig rope;
  rope.theta = 5e5;
  rope.scaling = RopeConfig::Scaling::kLlama3;
  rope.factor = factor;
  rope.original_context = 8192;
  rope.rotary_dims = dims;
  return rope;
}

TEST(Rope, Plain) {
  RopeConfig rope;
  rope.rotary_dims = 64;
  const RopeTable table = build(rope, 64);
  ASSERT_EQ(table.inverse_frequencies.size(), 32U);
  EXPECT_EQ(table.inverse_frequencies[0], 1.0);
  expect_relative(table.inverse_frequencies[16], 1e-2);
  EXPECT_EQ(table.magnitude, 1.0F);
}

TEST(Rope, PartialRotationPairsWithinTheRotatedDims) {
  RopeConfig rope;
  rope.theta = 1e7;
  rope.rotary_dims = 64;
  const RopeTable table = build(rope, 256);
  EXPECT_EQ(table.inverse_frequencies.size(), 32U);
  EXPECT_EQ(table.pair_offset, 32);
}

TEST(Rope, Linear) {
  RopeConfig rope;
  rope.scaling = RopeConfig::Scaling::kLinear;
  rope.factor = 4;
  rope.rotary_dims = 64;
  EXPECT_EQ(build(rope, 64).inverse_frequencies[0], 0.25);
}

TEST(Rope, Llama3) {
  struct Golden {
    double factor;
    std::int64_t dims;
    std::size_t first;  // of the transition; divisor 1 before, `factor` after
    std::vector<double> divisors;
    double last;
  };
  const Golden goldens[] = {
      {8, 128, 29, {1.207484, 1.553415, 2.026313, 2.69453, 3.684253, 5.257327}, 3.06892599e-07},
      {32, 128, 29, {1.234937, 1.651329, 2.27666, 3.292262, 5.171596, 9.666729}, 7.67231497e-08},
      {32, 64, 15, {1.651329, 3.292262, 9.666729}, 9.41830673e-08},
  };
  for (const Golden& golden : goldens) {
    const RopeTable table = build(llama3(golden.factor, golden.dims), golden.dims);
    const std::size_t pairs = table.inverse_frequencies.size();
    ASSERT_EQ(pairs, static_cast<std::size_t>(golden.dims / 2));
    for (std::size_t j = 0; j < pairs; ++j) {
      const double plain = std::pow(5e5, -2.0 * static_cast<double>(j) / static_cast<double>(golden.dims));
      const bool before = j < golden.first;
      const bool within = !before && j < golden.first + golden.divisors.size();
      const double expected = before ? 1.0 : (within ? golden.divisors[j - golden.first] : golden.factor);
      expect_relative(plain / table.inverse_frequencies[j], expected);
    }
    expect_relative(table.inverse_frequencies.back(), golden.last, 1e-8);
  }
}

TEST(Rope, YarnWithTruncation) {
  RopeConfig rope;
  rope.theta = 1e6;
  rope.scaling = RopeConfig::Scaling::kYarn;
  rope.factor = 4;
  rope.original_context = 32768;
  rope.rotary_dims = 128;
  const RopeTable table = build(rope, 128);
  EXPECT_NEAR(table.magnitude, 1.138629436, 1e-7);
  EXPECT_EQ(table.inverse_frequencies[0], 1.0);
  expect_relative(table.inverse_frequencies[23], 0.00697830585, 1e-8);
  expect_relative(table.inverse_frequencies[28], 0.00184827656, 1e-8);
  expect_relative(table.inverse_frequencies[40], 4.44569853e-05, 1e-8);
  expect_relative(table.inverse_frequencies[63], 3.1023444e-07, 1e-8);
}

TEST(Rope, YarnWithoutTruncation) {
  RopeConfig rope;
  rope.theta = 150000;
  rope.scaling = RopeConfig::Scaling::kYarn;
  rope.factor = 32;
  rope.original_context = 4096;
  rope.truncate = false;
  rope.rotary_dims = 64;
  const RopeTable table = build(rope, 64);
  EXPECT_NEAR(table.magnitude, 1.3465735902799727, 1e-7);
  const double goldens[] = {0.0737445682,   0.0508132748,   0.0317056962,  0.0193350011, 0.0115920493,
                            0.00679495949,  0.00386035932,  0.00209379238, 0.0010526021, 0.000456483919,
                            0.000129318701, 3.83088124e-05, 2.6396469e-05};
  for (std::size_t i = 0; i < std::size(goldens); ++i)
    expect_relative(table.inverse_frequencies[7 + i], goldens[i], 1e-8);
  expect_relative(table.inverse_frequencies[31], 3.02351143e-07, 1e-8);
}

TEST(Rope, AStatedAttentionFactorReplacesTheUsualOne) {
  RopeConfig rope;
  rope.scaling = RopeConfig::Scaling::kYarn;
  rope.factor = 4;
  rope.original_context = 4096;
  rope.rotary_dims = 64;
  rope.attention_factor = 1.5;
  EXPECT_EQ(build(rope, 64).magnitude, 1.5F);
}

TEST(Rope, ProportionalSpacesOverTheWholeHead) {
  RopeConfig rope;
  rope.theta = 1e6;
  rope.scaling = RopeConfig::Scaling::kProportional;
  rope.rotary_dims = 128;
  const RopeTable table = build(rope, 512);
  ASSERT_EQ(table.inverse_frequencies.size(), 64U);
  EXPECT_EQ(table.pair_offset, 256);
  expect_relative(table.inverse_frequencies[63], std::pow(1e6, -126.0 / 512.0), 1e-12);

  // GGUF says the same by divisors: 1 for the pairs that turn, 1e30 for the others.
  std::vector<float> divisors(256, 1e30F);
  std::fill(divisors.begin(), divisors.begin() + 64, 1.0F);
  rope.rotary_dims = 512;
  const RopeTable stored = build(rope, 512, divisors);
  EXPECT_EQ(stored.inverse_frequencies, table.inverse_frequencies);
  EXPECT_EQ(stored.pair_offset, 256);
}

TEST(Rope, DivisorsAreChecked) {
  RopeConfig rope;
  rope.rotary_dims = 8;
  for (const std::vector<float>& bad :
       {std::vector<float>{1, 1, 1}, std::vector<float>{1, 0, 1, 1}, std::vector<float>{1, std::nanf(""), 1, 1}}) {
    EXPECT_FALSE(build_rope(rope, 8, bad));
  }
  EXPECT_EQ(build(rope, 8, std::vector<float>{2, 1, 1, 1}).inverse_frequencies[0], 0.5);
}

}  // namespace
}  // namespace vernier
