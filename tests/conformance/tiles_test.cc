// AMX tiles sum in the order that docs/decisions/cpu-amx.md states, to the bit.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>

#include "backend/cpu/cpu_isa.h"
#include "format/decode.h"
#include "format/format_list.h"
#include "support/backends.h"
#include "support/random_weight.h"

namespace vernier::test {
namespace {

constexpr std::int64_t kTileValues = 32;

/// The product of a row, both of bf16, as the instruction is described.
float product_in_tiles(const float* row, const float* x, std::int64_t cols) {
  float sum = 0.0F;
  for (std::int64_t k = 0; k < cols; k += kTileValues) {
    float even = 0.0F;
    float odd = 0.0F;
    for (std::int64_t i = k; i < k + kTileValues; i += 2) {
      even = std::fma(i < cols ? row[i] : 0.0F, i < cols ? x[i] : 0.0F, even);
      odd = std::fma(i + 1 < cols ? row[i + 1] : 0.0F, i + 1 < cols ? x[i + 1] : 0.0F, odd);
    }
    sum += even + odd;
  }
  return sum;
}

TEST(Tiles, SumInTheOrderThatTheInstructionDoes) {
  if (!choose_kernels("amx")) GTEST_SKIP() << "needs amx";
  const auto backend = make_backend({"cpu", "amx"}, Precision::kBf16, 1);
  constexpr std::int64_t kRows = 37;
  constexpr std::int64_t kCols = 1111;
  constexpr std::int64_t kTokens = 21;
  Weight host = random_weight({.format = find_plain_format(DType::kBF16).value(),
                               .layout = WeightLayout::kPlain,
                               .rows = kRows,
                               .cols = kCols});
  for (std::int64_t r = 0; r < kRows; ++r) {  // exponents of -7 .. 0
    std::byte* codes = mutable_codes(host) + r * host.row_stride;
    for (std::int64_t i = 0; i < kCols; ++i) {
      codes[2 * i + 1] = (codes[2 * i + 1] & std::byte{0x83}) | std::byte{0x3C};
    }
  }
  Random random(5);
  std::vector<float> x = random.floats(kTokens * kCols);
  const Weight weight = backend->place(host).value();
  const TestMatrix x_matrix(*backend, kTokens, kCols, x);
  const TestMatrix y_matrix(*backend, kTokens, kRows);
  const LinearOutput output = {.weight = &weight, .bias = {}, .y = y_matrix.view(), .accumulate = false};
  VN_EXPECT_OK(backend->linear({x_matrix.view(), {&output, 1}}));
  const std::vector<float> y = y_matrix.read();
  for (float& value : x) value = rounded_input(value, Precision::kBf16);
  std::vector<float> row(static_cast<std::size_t>(kCols));
  for (std::int64_t r = 0; r < kRows; ++r) {
    decode_row(host, r, 0, kCols, row.data());
    for (std::int64_t t = 0; t < kTokens; ++t) {
      const float expected = product_in_tiles(row.data(), x.data() + t * kCols, kCols);
      ASSERT_EQ(std::bit_cast<std::uint32_t>(y[static_cast<std::size_t>(t * kRows + r)]),
                std::bit_cast<std::uint32_t>(expected))
          << "row " << r << ", token " << t;
    }
  }
}

}  // namespace
}  // namespace vernier::test
