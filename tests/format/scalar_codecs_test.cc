#include "format/scalar_codecs.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "format/ggml_legacy.h"
#include "format/golden.h"
#include "format/iq4.h"

namespace vernier {
namespace {

using test::read_golden;
using test::same_bits;

template <class Codec>
void expect_all_codes(const std::string& name) {
  const auto expected = read_golden<float>("codec_" + name + ".f32");
  ASSERT_EQ(expected.size(), std::size_t{1} << Codec::kBits);
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const auto code = static_cast<typename Codec::Code>(i);
    ASSERT_TRUE(same_bits(Codec::decode(code), expected[i])) << name << " code " << i;
    ASSERT_TRUE(same_bits(decode_code<Codec>(code), expected[i])) << name << " code " << i << " by table";
    ASSERT_EQ(Codec::is_finite(code), std::isfinite(expected[i])) << name << " code " << i;
  }
}

TEST(ScalarCodecs, EveryCodeHasItsExactValue) {
  expect_all_codes<E2M1Codec>("e2m1");
  expect_all_codes<E4M3Codec>("e4m3");
  expect_all_codes<UE4M3Codec>("e4m3");
  expect_all_codes<E5M2Codec>("e5m2");
  expect_all_codes<E8M0Codec>("e8m0");
}

template <class Codec>
void expect_all_16_bit_codes(const std::string& name) {
  const auto expected = read_golden<float>("codec_" + name + ".f32");
  ASSERT_EQ(expected.size(), 65536u);
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const auto code = static_cast<std::uint16_t>(i);
    const float value = Codec::decode(code);
    ASSERT_TRUE(same_bits(value, expected[i])) << name << " code " << i;
    ASSERT_EQ(Codec::is_finite(code), std::isfinite(expected[i])) << name << " code " << i;
    if (value == value) {
      ASSERT_EQ(Codec::encode(value), code) << name;
    } else {
      ASSERT_TRUE(std::isnan(Codec::decode(Codec::encode(value)))) << name << " code " << i;
    }
  }
}

TEST(ScalarCodecs, SixteenBitCodesSurviveTheRoundTrip) {
  expect_all_16_bit_codes<F16Codec>("f16");
  expect_all_16_bit_codes<BF16Codec>("bf16");
}

TEST(ScalarCodecs, EncodingRoundsToNearestEven) {
  const auto rows = read_golden<std::uint32_t>("rounding.u32");
  ASSERT_GT(rows.size(), 4u * 500);
  for (std::size_t i = 0; i + 3 < rows.size(); i += 4) {
    float value = 0;
    std::memcpy(&value, &rows[i], sizeof value);
    ASSERT_EQ(BF16Codec::encode(value), rows[i + 1]) << value;
    ASSERT_EQ(F16Codec::encode(value), rows[i + 2]) << value;
    ASSERT_EQ(E4M3Codec::encode(value), rows[i + 3]) << value;
  }
}

TEST(ScalarCodecs, EncodingKeepsSpecialValues) {
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(BF16Codec::encode(infinity), 0x7F80);
  EXPECT_EQ(BF16Codec::encode(-infinity), 0xFF80);
  EXPECT_EQ(F16Codec::encode(infinity), 0x7C00);
  EXPECT_EQ(F16Codec::encode(-infinity), 0xFC00);
  EXPECT_EQ(E4M3Codec::encode(infinity), 0x7E);
  EXPECT_EQ(E4M3Codec::encode(-infinity), 0xFE);
  // A NaN whose payload is only in the bits that are cut must not become infinity.
  const float nan = F32Codec::decode(0x7F800001);
  EXPECT_EQ(BF16Codec::encode(nan), 0x7FC0);
  EXPECT_EQ(F16Codec::encode(nan), 0x7E00);
  EXPECT_EQ(E4M3Codec::encode(nan), 0x7F);
}

TEST(ScalarCodecs, EveryE4M3CodeEncodesToItself) {
  for (int code = 0; code < 256; ++code) {
    if ((code & 0x7F) == 0x7F) continue;
    EXPECT_EQ(E4M3Codec::encode(E4M3Codec::decode(static_cast<std::uint8_t>(code))), code);
  }
}

TEST(ScalarCodecs, LegalScales) {
  for (int i = 0; i < 256; ++i) {
    const auto code = static_cast<std::uint8_t>(i);
    EXPECT_EQ(UE4M3Codec::is_legal_scale(code), i < 0x7F) << i;
    EXPECT_EQ(E8M0Codec::is_legal_scale(code), i != 0xFF) << i;
  }
}

// The bytes that engines have got wrong in public, by hand and not from a golden file.
TEST(ScalarCodecs, KnownTraps) {
  static_assert(E2M1Codec::decode(1) == 0.5f && E2M1Codec::decode(9) == -0.5f, "subnormal codes");
  EXPECT_TRUE(std::signbit(E2M1Codec::decode(8)));
  static_assert(E4M3Codec::decode(0x01) == 0x1p-9f && E4M3Codec::decode(0x77) == 240.0f);
  static_assert(E4M3Codec::decode(0x7E) == 448.0f && E4M3Codec::decode(0x78) == 256.0f);
  EXPECT_TRUE(std::isnan(E4M3Codec::decode(0x7F)));
  EXPECT_TRUE(std::isnan(E4M3Codec::decode(0xFF)));
  static_assert(E8M0Codec::decode(0x00) == 0x1p-127f && E8M0Codec::decode(0x86) == 128.0f);
  EXPECT_TRUE(std::isnan(E8M0Codec::decode(0xFF)));
  const float expected[] = {0x1p-7f, 0.25f, 1.0f, 8.0f, 8192.0f};
  const std::uint8_t bytes[] = {0x78, 0x7D, 0x7F, 0x82, 0x8C};
  for (int i = 0; i < 5; ++i) EXPECT_EQ(E8M0Codec::decode(bytes[i]), expected[i]);
}

// Largest magnitudes decide where the scan for overflow looks closer.
template <class Codec>
void expect_largest() {
  float largest = 0;
  for (const float value : kDecodeTable<Codec>) {
    if (std::isfinite(value)) largest = std::max(largest, std::fabs(value));
  }
  EXPECT_EQ(Codec::kMax, largest);
}

TEST(ScalarCodecs, StatedMaximumIsReached) {
  expect_largest<E2M1Codec>();
  expect_largest<E4M3Codec>();
  expect_largest<E5M2Codec>();
  expect_largest<E8M0Codec>();
  expect_largest<Nibble8Codec>();
  expect_largest<Int8Codec>();
  expect_largest<Iq4Codec>();
}

}  // namespace
}  // namespace vernier
