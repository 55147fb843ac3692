// Backend::linear and embed: every backend x format x layout x shape against double precision, element by element.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "format/decode.h"
#include "format/format_list.h"
#include "support/backends.h"
#include "support/random_weight.h"

namespace vernier::test {
namespace {

struct LinearCase {
  WeightSpec spec;
  std::int64_t tokens = 1;
  Precision precision = Precision::kBf16;
  bool bias = false;
  bool accumulate = false;
};

/// y and its error bound for one element, in double.
struct Expected {
  double value = 0.0;
  double bound = 0.0;
};

Expected expected_product(const Weight& weight, std::int64_t n, const float* x, Precision precision) {
  std::vector<double> row(static_cast<std::size_t>(weight.cols));
  decode_row_f64(weight, n, 0, weight.cols, row.data());
  double sum = 0.0;
  double magnitude = 0.0;
  for (std::int64_t k = 0; k < weight.cols; ++k) {
    const double product = row[static_cast<std::size_t>(k)] * rounded_input(x[k], precision);
    sum += product;
    magnitude += std::fabs(product);
  }
  double factor = 1.0;
  if (!weight.outer.empty()) {
    factor = weight.outer.values[weight.outer.per_row() ? static_cast<std::size_t>(n) : 0];
    if (weight.outer.divides) factor = 1.0 / factor;
  }
  // K additions and a few roundings at the end.
  return {sum * factor, static_cast<double>(weight.cols + 4) * 0x1p-24 * magnitude * factor};
}

/// Runs one case and checks every element; poisons what the operation must overwrite.
void check_linear(Backend& backend, const LinearCase& test) {
  const Weight host = random_weight(test.spec);
  const auto placed = backend.place(host);
  ASSERT_TRUE(placed) << placed.error().message;
  Random random(test.spec.seed + 77);
  const std::vector<float> x = random.floats(test.tokens * test.spec.cols, 2.0F);
  const std::vector<float> bias = random.floats(test.spec.rows);
  const std::vector<float> before = random.floats(test.tokens * test.spec.rows);
  const TestMatrix x_matrix(backend, test.tokens, test.spec.cols, x);
  const TestMatrix y_matrix(backend, test.tokens, test.spec.rows, test.accumulate ? before : std::vector<float>{});
  const TestVector bias_vector(backend, bias);
  LinearOutput output;
  output.weight = &*placed;
  output.y = y_matrix.view();
  output.accumulate = test.accumulate;
  if (test.bias) output.bias = bias_vector.span();
  VN_EXPECT_OK(backend.linear({x_matrix.view(), {&output, 1}}));
  const std::vector<float> y = y_matrix.read();
  for (std::int64_t t = 0; t < test.tokens; ++t) {
    for (std::int64_t n = 0; n < test.spec.rows; ++n) {
      const auto i = static_cast<std::size_t>(t * test.spec.rows + n);
      Expected expected = expected_product(host, n, x.data() + t * test.spec.cols, test.precision);
      if (test.bias) expected.value += bias[static_cast<std::size_t>(n)];
      if (test.accumulate) expected.value += before[i];
      if (test.bias || test.accumulate) expected.bound += 0x1p-22;
      ASSERT_LE(std::fabs(y[i] - expected.value), expected.bound)
          << "row " << n << " of " << test.spec.rows << ", token " << t << " of " << test.tokens << ", K "
          << test.spec.cols << ": " << y[i] << " instead of " << expected.value;
    }
  }
}

/// Shapes that a kernel may stumble over: single rows and columns, one less and one more than tiles and vectors. Where
/// the format has blocks, columns are whole blocks.
std::vector<std::pair<std::int64_t, std::int64_t>> shapes(std::int64_t cols_multiple) {
  if (cols_multiple == 1) {
    return {{1, 1}, {3, 15}, {5, 16}, {17, 17}, {4, 100}, {130, 127}, {33, 128}, {129, 129}, {16, 300}};
  }
  std::vector<std::pair<std::int64_t, std::int64_t>> result;
  constexpr std::int64_t kRows[] = {1, 3, 17, 5, 33, 130};
  constexpr std::int64_t kBlocks[] = {1, 2, 3, 5, 8, 9};
  for (std::size_t i = 0; i < std::size(kRows); ++i) {
    const std::int64_t blocks = cols_multiple > 64 ? std::min<std::int64_t>(kBlocks[i], 3) : kBlocks[i];
    result.emplace_back(kRows[i], blocks * cols_multiple);
  }
  return result;
}

using Parameter = std::tuple<BackendCase, FormatCase>;

class LinearConformance : public BackendTest<Parameter> {};

TEST_P(LinearConformance, MatchesDoublePrecision) {
  const auto& [which, format] = GetParam();
  constexpr std::int64_t kTokens[] = {1, 2, 3, 8, 17, 0};
  constexpr OuterKind kOuter[] = {OuterKind::kNone, OuterKind::kScalar, OuterKind::kPerRow, OuterKind::kDivides};
  constexpr DType kGrids[] = {DType::kF32, DType::kBF16, DType::kF8E8M0};
  for (const Precision precision : {Precision::kBf16, Precision::kF32}) {
    const auto backend = make_backend(which, precision);
    ASSERT_NE(backend, nullptr);
    std::uint64_t i = precision == Precision::kBf16 ? 0 : 1;
    for (const auto& [rows, cols] : shapes(format.cols_multiple)) {
      LinearCase test;
      test.spec = {.format = format.format, .layout = format.layout, .rows = rows, .cols = cols};
      test.spec.row_padding = static_cast<std::int64_t>(i % 3) * 5;
      test.spec.first_row = static_cast<std::int64_t>(i % 4) * 50;
      test.spec.grid_dtype = kGrids[i % 3];
      test.spec.outer = kOuter[i % 4];
      test.spec.seed = i + 1;
      test.tokens = kTokens[i % 6];
      test.precision = precision;
      test.bias = i % 5 == 2;
      test.accumulate = i % 5 == 3;
      check_linear(*backend, test);
      if (HasFatalFailure()) return;
      ++i;
    }
  }
}

/// So many tokens that backends may take other paths than for a few.
TEST_P(LinearConformance, ManyTokens) {
  const auto& [which, format] = GetParam();
  for (const Precision precision : {Precision::kBf16, Precision::kF32}) {
    const auto backend = make_backend(which, precision);
    ASSERT_NE(backend, nullptr);
    LinearCase test;
    test.spec = {.format = format.format, .layout = format.layout, .rows = 37, .cols = 0};
    test.spec.cols = format.cols_multiple > 64 ? 512 : 604 / format.cols_multiple * format.cols_multiple;
    test.spec.outer = OuterKind::kPerRow;
    test.tokens = precision == Precision::kBf16 ? 133 : 45;
    test.precision = precision;
    test.bias = true;
    check_linear(*backend, test);
    if (HasFatalFailure()) return;
  }
}

/// Numbers of tokens on both sides of where backends change their ways: each row against double precision.
TEST_P(LinearConformance, AllNumbersOfTokens) {
  const auto& [which, format] = GetParam();
  const auto backend = make_backend(which, Precision::kBf16);
  ASSERT_NE(backend, nullptr);
  LinearCase test;
  test.spec = {.format = format.format, .layout = format.layout, .rows = 21, .cols = 0};
  test.spec.cols = format.cols_multiple > 64 ? 768 : 352 / format.cols_multiple * format.cols_multiple;
  for (const std::int64_t tokens : {1, 8, 9, 33, 129, 300}) {
    test.tokens = tokens;
    check_linear(*backend, test);
    if (HasFatalFailure()) return;
  }
}

/// With the unit matrix as input a product is the weight's value itself, to the bit.
TEST_P(LinearConformance, UnitInputsGiveExactWeights) {
  const auto& [which, format] = GetParam();
  const auto backend = make_backend(which, Precision::kBf16);
  ASSERT_NE(backend, nullptr);
  const std::int64_t cols =
      std::max<std::int64_t>(format.cols_multiple, 48) / format.cols_multiple * format.cols_multiple;
  const Weight host = random_weight({.format = format.format, .layout = format.layout, .rows = 40, .cols = cols});
  const auto placed = backend->place(host);
  ASSERT_TRUE(placed);
  std::vector<float> unit(static_cast<std::size_t>(cols * cols));
  for (std::int64_t i = 0; i < cols; ++i) unit[static_cast<std::size_t>(i * cols + i)] = 1.0F;
  const TestMatrix x(*backend, cols, cols, unit);
  const TestMatrix y(*backend, cols, host.rows);
  const LinearOutput output = {.weight = &*placed, .bias = {}, .y = y.view(), .accumulate = false};
  VN_EXPECT_OK(backend->linear({x.view(), {&output, 1}}));
  const std::vector<float> values = y.read();
  std::vector<double> row(static_cast<std::size_t>(cols));
  for (std::int64_t n = 0; n < host.rows; ++n) {
    decode_row_f64(host, n, 0, cols, row.data());
    for (std::int64_t k = 0; k < cols; ++k) {
      ASSERT_EQ(values[static_cast<std::size_t>(k * host.rows + n)],
                static_cast<float>(row[static_cast<std::size_t>(k)]))
          << "row " << n << ", column " << k;
    }
  }
}

TEST_P(LinearConformance, EmbedGivesExactRows) {
  const auto& [which, format] = GetParam();
  const auto backend = make_backend(which, Precision::kBf16);
  ASSERT_NE(backend, nullptr);
  const std::int64_t cols = format.cols_multiple == 1 ? 150 : format.cols_multiple * 2;
  WeightSpec spec = {.format = format.format, .layout = format.layout, .rows = 140, .cols = cols};
  spec.outer = OuterKind::kPerRow;
  const Weight host = random_weight(spec);
  const auto placed = backend->place(host);
  ASSERT_TRUE(placed);
  const std::vector<std::int32_t> tokens = {139, 0, 7, 7, 128};
  const TestMatrix x(*backend, 5, cols);
  VN_EXPECT_OK(backend->embed({.tokens = tokens, .table = &*placed, .multiplier = 4.0F, .x = x.view()}));
  const std::vector<float> values = x.read();
  std::vector<float> row(static_cast<std::size_t>(cols));
  for (std::size_t t = 0; t < tokens.size(); ++t) {
    decode_row(host, tokens[t], 0, cols, row.data());
    for (std::size_t k = 0; k < row.size(); ++k) {
      ASSERT_EQ(values[t * row.size() + k], host.outer.apply(row[k], tokens[t]) * 4.0F) << "token " << t;
    }
  }
}

class GridConformance : public BackendTest<> {};

/// Grids whose tiles fit neither vectors nor rows.
TEST_P(GridConformance, OddTiles) {
  const auto backend = make_backend(GetParam(), Precision::kF32);
  ASSERT_NE(backend, nullptr);
  for (const FormatCase& format : all_format_cases()) {
    if (format.layout != WeightLayout::kSeparate || !format_info(format.format).has_grid) continue;
    for (const auto& [block_rows, block_cols] : {std::pair{1, 128}, std::pair{64, 20}, std::pair{128, 7}}) {
      LinearCase test;
      test.spec = {.format = format.format, .layout = format.layout, .rows = 150, .cols = 190};
      test.spec.first_row = 100;
      test.spec.grid_block_rows = block_rows;
      test.spec.grid_block_cols = block_cols;
      test.tokens = 5;
      test.precision = Precision::kF32;
      check_linear(*backend, test);
    }
  }
}

class PlainConformance : public BackendTest<> {};

/// A weight of a plain format whose values are given, one row.
Weight weight_of(DType dtype, const std::vector<float>& values) {
  const auto cols = static_cast<std::int64_t>(values.size());
  Weight weight =
      random_weight({.format = find_plain_format(dtype).value(), .layout = WeightLayout::kPlain, .cols = cols});
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (dtype == DType::kBF16) {
      const BF16Codec::Code code = BF16Codec::encode(values[i]);
      std::memcpy(mutable_codes(weight) + i * sizeof(code), &code, sizeof(code));
    } else {
      std::memcpy(mutable_codes(weight) + i * sizeof(float), &values[i], sizeof(float));
    }
  }
  return weight;
}

std::vector<float> multiply_once(Backend& backend, const Weight& host, const std::vector<float>& x) {
  const Weight weight = backend.place(host).value();
  const TestMatrix x_matrix(backend, 1, weight.cols, x);
  const TestMatrix y_matrix(backend, 1, 1);
  const LinearOutput output = {.weight = &weight, .bias = {}, .y = y_matrix.view()};
  VN_EXPECT_OK(backend.linear({x_matrix.view(), {&output, 1}}));
  return y_matrix.read();
}

/// F32 at the ends of its range, where it is no sum of a few shorter numbers.
TEST_P(PlainConformance, F32OfAllSizes) {
  const auto backend = make_backend(GetParam(), Precision::kF32);
  ASSERT_NE(backend, nullptr);
  Random random(9);
  for (const float size : {0x1p-120F, 0x1p-126F, 0x1p-135F, 0x1p127F, 0x1p-60F}) {
    std::vector<float> values = random.floats(333, size);
    values[17] = size > 1.0F ? 0x1.FFFFFEp127F : 0x1.ABCDEFp-110F;
    const std::vector<float> x = random.floats(333, size > 1.0F ? 0x1p-20F : 0x1p20F);
    const Weight host = weight_of(DType::kF32, values);
    const std::vector<float> y = multiply_once(*backend, host, x);
    const Expected expected = expected_product(host, 0, x.data(), Precision::kF32);
    EXPECT_LE(std::fabs(y[0] - expected.value), expected.bound) << size;
  }
}

TEST_P(PlainConformance, NumbersOfBF16AsF32) {
  for (const Precision precision : {Precision::kBf16, Precision::kF32}) {
    const auto backend = make_backend(GetParam(), precision);
    ASSERT_NE(backend, nullptr);
    if (backend->name() == "cpu") GTEST_SKIP() << "sums them in another order";
    Random random(9);
    std::vector<float> values = random.floats(777);
    for (float& value : values) value = BF16Codec::decode(BF16Codec::encode(value));
    const std::vector<float> x = random.floats(777);
    EXPECT_EQ(multiply_once(*backend, weight_of(DType::kF32, values), x),
              multiply_once(*backend, weight_of(DType::kBF16, values), x));
  }
}

std::string parameter_name(const testing::TestParamInfo<Parameter>& info) {
  return std::get<0>(info.param).name() + "_" + std::get<1>(info.param).name;
}

INSTANTIATE_TEST_SUITE_P(All, LinearConformance,
                         testing::Combine(testing::ValuesIn(all_backends()), testing::ValuesIn(all_format_cases())),
                         parameter_name);
INSTANTIATE_TEST_SUITE_P(All, GridConformance, testing::ValuesIn(all_backends()),
                         [](const auto& parameter) { return parameter.param.name(); });
INSTANTIATE_TEST_SUITE_P(All, PlainConformance, testing::ValuesIn(all_backends()),
                         [](const auto& parameter) { return parameter.param.name(); });

}  // namespace
}  // namespace vernier::test
