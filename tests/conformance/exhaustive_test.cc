// Every code of every element and scale codec through every backend's kernels, whole vectors and left-over columns
// alike.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "format/decode.h"
#include "format/format_list.h"
#include "support/backends.h"
#include "support/random_weight.h"

namespace vernier::test {
namespace {

class ExhaustiveConformance : public BackendTest<> {};

/// y[t, n] of x [tokens, cols].
std::vector<float> products(Backend& backend, const Weight& host, const std::vector<float>& x, std::int64_t tokens) {
  const auto placed = backend.place(host);
  EXPECT_TRUE(placed);
  const TestMatrix x_matrix(backend, tokens, host.cols, x);
  const TestMatrix y(backend, tokens, host.rows);
  const LinearOutput output = {.weight = &*placed, .bias = {}, .y = y.view(), .accumulate = false};
  VN_EXPECT_OK(backend.linear({x_matrix.view(), {&output, 1}}));
  return y.read();
}

/// Equal, or both NaN.
::testing::AssertionResult same(float actual, double expected) {
  if (std::isnan(expected) ? std::isnan(actual) : actual == static_cast<float>(expected)) {
    return ::testing::AssertionSuccess();
  }
  return ::testing::AssertionFailure() << actual << " instead of " << expected;
}

/// A weight with one code of a plain format in each row: column 0 of `cols`, zeros behind it.
template <class F>
Weight all_codes(std::int64_t cols) {
  using Code = typename F::Element::Code;
  const std::int64_t count = std::int64_t{1} << std::min(F::Element::kBits, 16);
  Weight weight =
      random_weight({.format = kFormatIdOf<F>, .layout = WeightLayout::kPlain, .rows = count, .cols = cols});
  for (std::int64_t r = 0; r < count; ++r) {
    std::byte* row = mutable_codes(weight) + r * weight.row_stride;
    std::memset(row, 0, static_cast<std::size_t>(weight.row_stride));
    // Of 32-bit codes, the upper half counts through.
    const auto code =
        static_cast<Code>(sizeof(Code) == 4 ? static_cast<std::uint64_t>(r) << 16 : static_cast<std::uint64_t>(r));
    std::memcpy(row, &code, sizeof(code));
  }
  return weight;
}

TEST_P(ExhaustiveConformance, PlainElements) {
  const auto backend = make_backend(GetParam(), Precision::kF32);
  for (std::size_t i = 0; i < kFormats.size(); ++i) {
    visit_format(static_cast<FormatId>(i), [&]<class F>(std::type_identity<F>) {
      if constexpr (HasPlain<F>) {
        for (const std::int64_t cols : {1, 16}) {
          const Weight weight = all_codes<F>(cols);
          const std::vector<float> y =
              products(*backend, weight, std::vector<float>(static_cast<std::size_t>(cols), 1.0F), 1);
          for (std::int64_t r = 0; r < weight.rows; ++r) {
            double expected = 0.0;
            decode_row_f64(weight, r, 0, 1, &expected);
            ASSERT_TRUE(same(y[static_cast<std::size_t>(r)], expected)) << F::kName << " code " << r << " of " << cols;
          }
        }
      }
    });
  }
}

/// Formats with block scales of 8 bits or fewer... all of them: a row for each legal scale code, all element codes in
/// it.
template <class F, class Layout>
void check_all_scales(Backend& backend, WeightLayout layout) {
  using ScaleCode = typename F::Scale::Code;
  constexpr std::int64_t kCodes = std::int64_t{1} << F::Element::kBits;
  constexpr std::int64_t kStep = sizeof(ScaleCode) == 1 ? 1 : 37;  // of 65,536 codes a sample
  const std::int64_t cols =
      std::max<std::int64_t>(kCodes, layout == WeightLayout::kInterleaved ? F::kBlockValues : F::kScaleValues);
  std::vector<ScaleCode> scales;
  for (std::int64_t code = 0; code < std::int64_t{1} << (8 * sizeof(ScaleCode)); code += kStep) {
    const auto scale = static_cast<ScaleCode>(code);
    // Where the largest value overflows, unit inputs would multiply infinity by zero; such blocks are refused at load.
    if (F::Scale::is_legal_scale(scale) && std::isfinite(F::Scale::decode(scale) * F::Element::kMax))
      scales.push_back(scale);
  }
  const auto rows = static_cast<std::int64_t>(scales.size());
  const Weight weight = random_weight({.format = kFormatIdOf<F>, .layout = layout, .rows = rows, .cols = cols});
  for (std::int64_t r = 0; r < rows; ++r) {
    std::byte* codes = mutable_codes(weight) + r * weight.row_stride;
    const bool interleaved = layout == WeightLayout::kInterleaved;
    for (std::int64_t group = 0; group < cols / F::kScaleValues; ++group) {
      const std::int64_t block = interleaved ? group * F::kScaleValues / F::kBlockValues : 0;
      const std::int64_t in_block = interleaved ? group - block * F::kBlockValues / F::kScaleValues : group;
      std::byte* base = interleaved ? codes + block * F::kBlockBytes : mutable_scales(weight) + r * weight.scale_stride;
      std::memcpy(base + Layout::kScalesAt + in_block * static_cast<std::int64_t>(sizeof(ScaleCode)),
                  &scales[static_cast<std::size_t>(r)], sizeof(ScaleCode));
    }
    for (std::int64_t i = 0; i < cols; ++i) {
      const std::int64_t block = interleaved ? i / F::kBlockValues : 0;
      const CodePosition at = code_position<F, Layout>(interleaved ? i % F::kBlockValues : i);
      std::byte& byte = (codes + block * (interleaved ? F::kBlockBytes : 0))[at.byte];
      const auto code = static_cast<unsigned>(i % kCodes);
      if (F::Element::kBits == 8) {
        byte = static_cast<std::byte>(code);
      } else {
        byte = (byte & static_cast<std::byte>(0xF0 >> at.shift)) | static_cast<std::byte>(code << at.shift);
      }
    }
  }
  std::vector<float> unit(static_cast<std::size_t>(cols * cols));
  for (std::int64_t i = 0; i < cols; ++i) unit[static_cast<std::size_t>(i * cols + i)] = 1.0F;
  const std::vector<float> y = products(backend, weight, unit, cols);
  std::vector<double> row(static_cast<std::size_t>(cols));
  for (std::int64_t r = 0; r < rows; ++r) {
    decode_row_f64(weight, r, 0, cols, row.data());
    for (std::int64_t k = 0; k < cols; ++k) {
      ASSERT_TRUE(same(y[static_cast<std::size_t>(k * rows + r)], row[static_cast<std::size_t>(k)]))
          << F::kName << ", scale code " << scales[static_cast<std::size_t>(r)] << ", column " << k;
    }
  }
}

TEST_P(ExhaustiveConformance, BlockScalesAndTheirElements) {
  const auto backend = make_backend(GetParam(), Precision::kBf16);
  for (std::size_t i = 0; i < kFormats.size(); ++i) {
    visit_format(static_cast<FormatId>(i), [&]<class F>(std::type_identity<F>) {
      if constexpr (HasCodes<F>) {
        if constexpr (HasInterleaved<F>) {
          check_all_scales<F, typename F::Interleaved>(*backend, WeightLayout::kInterleaved);
        }
        if constexpr (HasSeparate<F>) {
          if constexpr (!std::is_same_v<typename F::Scale, GridScale>) {
            check_all_scales<F, typename F::Separate>(*backend, WeightLayout::kSeparate);
          }
        }
      }
    });
  }
}

/// NaN codes: in an element or a scale they make the product NaN, on every path.
TEST_P(ExhaustiveConformance, NanSpreads) {
  const auto backend = make_backend(GetParam(), Precision::kBf16);
  for (const FormatCase& format : all_format_cases()) {
    const std::int64_t cols = format.cols_multiple == 1 ? 33 : format.cols_multiple * 2;
    const FormatInfo& info = format_info(format.format);
    const bool separate = format.layout == WeightLayout::kSeparate;
    if (format.layout == WeightLayout::kInterleaved || (info.code_bits == 4 && !separate)) continue;
    const Weight weight = random_weight({.format = format.format, .layout = format.layout, .rows = 3, .cols = cols});
    // All bits set is NaN in every codec here that has one.
    if (separate) {
      std::memset(mutable_scales(weight), 0xFF, dtype_bits(weight.scale_dtype) / 8);
    } else {
      std::memset(mutable_codes(weight), 0xFF, static_cast<std::size_t>(info.code_bits / 8));
    }
    const std::vector<float> y =
        products(*backend, weight, std::vector<float>(static_cast<std::size_t>(cols), 1.0F), 1);
    EXPECT_TRUE(std::isnan(y[0])) << format.name;
    EXPECT_EQ(std::isnan(y[2]), info.has_grid) << format.name << ": another row";
  }
}

INSTANTIATE_TEST_SUITE_P(All, ExhaustiveConformance, testing::ValuesIn(all_backends()),
                         [](const auto& parameter) { return parameter.param.name(); });

}  // namespace
}  // namespace vernier::test
