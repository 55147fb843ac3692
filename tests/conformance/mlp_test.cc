// Operations that stand for several, a dense MLP and linears with a norm in front: on every backend, for every format,
// the bits of the operations they stand for, however many tokens there are.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <string>
#include <utility>
#include <vector>

#include "support/backends.h"
#include "support/random_weight.h"
#include "support/under_tool.h"

namespace vernier::test {
namespace {

class MlpConformance : public BackendTest<> {};

/// Some of which make gates that the exponential takes to the ends of its range, or that are nothing but themselves.
std::vector<float> gate_biases(std::int64_t count) {
  constexpr float kSpecial[] = {0.0F, -200.0F, 1e-25F, 90.0F, -0.0F, -45.0F, 1e-42F, -3e30F, 2e30F};
  std::vector<float> biases = Random(5).floats(count);
  for (std::size_t i = 0; i < biases.size(); i += 5) biases[i] = kSpecial[i / 5 % std::size(kSpecial)];
  return biases;
}

/// An MLP's weights in backend memory.
struct Mlp {
  Weight gate;
  Weight up;
  Weight down;
  TestVector norm;
  TestVector gate_bias;
  TestVector down_bias;
  ActivationSpec activation;

  Mlp(Backend& backend, const FormatCase& format, std::int64_t dim, std::int64_t ff)
      : norm(backend, Random(4).floats(dim)),
        gate_bias(backend, gate_biases(ff)),
        down_bias(backend, Random(6).floats(dim)) {
    WeightSpec spec = {.format = format.format, .layout = format.layout, .rows = ff, .cols = dim};
    gate = backend.place(random_weight(spec)).value();
    spec.seed = 2;
    up = backend.place(random_weight(spec)).value();
    spec.rows = dim;
    spec.cols = ff;
    down = backend.place(random_weight(spec)).value();
  }
};

constexpr float kEps = 1e-5F;
constexpr Activation kKinds[] = {Activation::kSilu, Activation::kGeluTanh, Activation::kClampedSwiglu};

enum class How { kOneOperation, kInSteps };

std::vector<float> run(Backend& backend, const Mlp& mlp, const std::vector<float>& x, std::int64_t tokens, How how) {
  const TestMatrix input(backend, tokens, mlp.down.rows, x);
  const TestMatrix gate(backend, tokens, mlp.gate.rows);
  const TestMatrix up(backend, tokens, mlp.gate.rows);
  const TestMatrix output(backend, tokens, mlp.down.rows, x);
  const LinearOutput last = {&mlp.down, mlp.down_bias.span(), output.view(), true};
  const std::array<LinearOutput, 2> first = {LinearOutput{&mlp.gate, mlp.gate_bias.span(), gate.view()},
                                             LinearOutput{&mlp.up, {}, up.view()}};
  const TestMatrix normed(backend, tokens, mlp.down.rows);
  if (how == How::kOneOperation) {
    VN_EXPECT_OK(backend.gated_mlp({.x = input.view(),
                                    .gate = first[0],
                                    .up = first[1],
                                    .activation = mlp.activation,
                                    .down = last,
                                    .norm = {mlp.norm.span(), kEps, normed.view()}}));
  } else {
    VN_EXPECT_OK(backend.rms_norm({.x = input.view(), .weight = mlp.norm.span(), .eps = kEps, .y = normed.view()}));
    VN_EXPECT_OK(backend.linear({normed.view(), first}));
    VN_EXPECT_OK(backend.gated_activation({mlp.activation, gate.view(), up.view(), gate.view()}));
    VN_EXPECT_OK(backend.linear({gate.view(), std::span(&last, 1)}));
  }
  return output.read();
}

/// Where two results differ in their bits; their size: nowhere.
std::size_t first_difference(const std::vector<float>& a, const std::vector<float>& b) {
  std::size_t i = 0;
  while (i < a.size() && std::bit_cast<std::uint32_t>(a[i]) == std::bit_cast<std::uint32_t>(b[i])) ++i;
  return i;
}

/// Rows of an input.
struct Part {
  std::int64_t begin;
  std::int64_t tokens;
};

/// A part of x, taken alone, gives to the bit what `whole` has of it.
void expect_same_alone(Backend& backend, const Mlp& mlp, const std::vector<float>& x, const std::vector<float>& whole,
                       Part part) {
  const auto from = static_cast<std::ptrdiff_t>(part.begin * mlp.down.rows);
  const auto count = static_cast<std::ptrdiff_t>(part.tokens * mlp.down.rows);
  const std::vector<float> rows(x.begin() + from, x.begin() + from + count);
  const std::vector<float> expected(whole.begin() + from, whole.begin() + from + count);
  const std::vector<float> apart = run(backend, mlp, rows, part.tokens, How::kOneOperation);
  ASSERT_EQ(first_difference(apart, expected), expected.size()) << part.tokens << " tokens from " << part.begin;
}

TEST_P(MlpConformance, IsItsSteps) {
  for (const Precision precision : {Precision::kBf16, Precision::kF32}) {
    const auto backend = make_backend(GetParam(), precision);
    ASSERT_NE(backend, nullptr);
    int which = 0;
    for (const FormatCase& format : all_format_cases()) {
      // Once with whole chunks of columns, once with odd ends; rows long enough to be normed inside a product.
      const std::int64_t dim = format.cols_multiple == 1 ? 333 : format.cols_multiple > 64 ? 1280 : 1088;
      const std::int64_t ff = format.cols_multiple == 1 ? 203 : format.cols_multiple > 64 ? 256 : 192;
      Mlp mlp(*backend, format, dim, ff);
      mlp.activation.kind = kKinds[which++ % std::size(kKinds)];
      for (const std::int64_t tokens : {1, 3, 9}) {
        const std::vector<float> x = Random(7).floats(tokens * dim, 0.25F);
        const std::vector<float> whole = run(*backend, mlp, x, tokens, How::kOneOperation);
        const std::vector<float> steps = run(*backend, mlp, x, tokens, How::kInSteps);
        ASSERT_EQ(first_difference(whole, steps), whole.size()) << format.name << ", " << tokens << " tokens";
      }
    }
  }
}

/// Tokens by the hundred, with rows of zeros among them.
TEST_P(MlpConformance, RowsOfManyTokens) {
  for (const Precision precision : {Precision::kBf16, Precision::kF32}) {
    const auto backend = make_backend(GetParam(), precision);
    ASSERT_NE(backend, nullptr);
    const std::int64_t most = backend->name() == "cuda" ? 257 : 43;
    int which = 0;
    for (const FormatCase& format : all_format_cases()) {
      if (is_brief(format) && (precision == Precision::kBf16 || format.cols_multiple <= 64)) continue;
      const std::int64_t dim = format.cols_multiple == 1 ? 333 : format.cols_multiple > 64 ? 512 : 320;
      const std::int64_t ff = format.cols_multiple == 1 ? 203 : format.cols_multiple > 64 ? 768 : 448;
      Mlp mlp(*backend, format, dim, ff);
      mlp.activation.kind = kKinds[which++ % std::size(kKinds)];
      std::vector<float> x = Random(7).floats(most * dim, 0.25F);
      for (std::int64_t token = 4; token < most; token += 11) std::fill_n(x.begin() + token * dim, dim, 0.0F);
      const std::vector<float> whole = run(*backend, mlp, x, most, How::kOneOperation);
      if (is_brief(format)) continue;
      const std::vector<float> steps = run(*backend, mlp, x, most, How::kInSteps);
      ASSERT_EQ(first_difference(whole, steps), whole.size()) << format.name;
      for (const std::int64_t tokens : {1, 8, 43, 127, 128, 131, 160}) {
        if (is_under_racecheck() && tokens % 2 == 0) continue;
        const std::int64_t begin = (most - tokens) / 2;
        if (begin < 0) break;
        SCOPED_TRACE(format.name);
        expect_same_alone(*backend, mlp, x, whole, {begin, tokens});
        if (HasFatalFailure()) return;
      }
    }
  }
}

/// Long rows, which few tokens take in other ways than short ones. CUDA alone: it takes others minutes under a
/// sanitizer.
TEST_P(MlpConformance, FewTokensOfLongRows) {
  for (const Precision precision : {Precision::kBf16, Precision::kF32}) {
    const auto backend = make_backend(GetParam(), precision);
    ASSERT_NE(backend, nullptr);
    if (backend->name() != "cuda") GTEST_SKIP() << "has one way for any length of row";
    int which = 0;
    for (const FormatCase& format : all_format_cases()) {
      if (format.cols_multiple > 64) continue;
      const std::int64_t dim = format.cols_multiple == 1 ? 1341 : 1344;
      const std::int64_t ff = format.cols_multiple == 1 ? 2623 : 2624;
      Mlp mlp(*backend, format, dim, ff);
      mlp.activation.kind = kKinds[which++ % std::size(kKinds)];
      constexpr std::int64_t kMost = 40;
      const std::vector<float> x = Random(7).floats(kMost * dim, 0.25F);
      const std::vector<float> whole = run(*backend, mlp, x, kMost, How::kInSteps);
      for (const std::int64_t tokens : {1, 2, 7, 8, 16}) {
        SCOPED_TRACE(format.name);
        expect_same_alone(*backend, mlp, x, whole, {tokens, tokens});
        if (HasFatalFailure()) return;
      }
    }
  }
}

/// The same with tiles as large as they get.
TEST_P(MlpConformance, RowsOfLargeTiles) {
  const auto backend = make_backend(GetParam(), Precision::kBf16);
  ASSERT_NE(backend, nullptr);
  if (backend->name() != "cuda") GTEST_SKIP() << "cuts rows by its own rules";
  int which = 0;
  for (const FormatCase& format : all_format_cases()) {
    if (format.layout == WeightLayout::kInterleaved) continue;
    constexpr std::int64_t kDim = 320;
    for (const std::int64_t most : {250, 1000}) {
      Mlp mlp(*backend, format, kDim, 4160);
      mlp.activation.kind = kKinds[which++ % std::size(kKinds)];
      const std::vector<float> x = Random(7).floats(most * kDim, 0.25F);
      const std::vector<float> whole = run(*backend, mlp, x, most, How::kOneOperation);
      for (const Part part : {Part{0, 40}, Part{120, 20}, Part{most - 3, 3}}) {
        SCOPED_TRACE(format.name);
        expect_same_alone(*backend, mlp, x, whole, part);
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_P(MlpConformance, NormedLinearIsItsSteps) {
  for (const Precision precision : {Precision::kBf16, Precision::kF32}) {
    const auto backend = make_backend(GetParam(), precision);
    ASSERT_NE(backend, nullptr);
    for (const FormatCase& format : formats_for_many_tokens()) {
      // Rows that take 128, 256 and 512 threads to norm, and one of odd length.
      for (std::int64_t dim : {768, 1536, 2560}) {
        if (format.cols_multiple == 1 && dim == 1536) dim = 1531;
        const Weight weight =
            backend->place(random_weight({.format = format.format, .layout = format.layout, .rows = 48, .cols = dim}))
                .value();
        const TestVector norm(*backend, Random(4).floats(dim));
        for (const std::int64_t tokens : {1, 2, 3, 8, 9, 50, 131}) {
          if (is_under_racecheck() && tokens < 9 && tokens > 1) continue;
          const TestMatrix x(*backend, tokens, dim, Random(7).floats(tokens * dim, 3.0F));
          const TestMatrix normed(*backend, tokens, dim);
          const TestMatrix y(*backend, tokens, weight.rows);
          const LinearOutput output = {&weight, {}, y.view()};
          VN_EXPECT_OK(backend->linear({x.view(), {&output, 1}, {norm.span(), kEps, normed.view()}}));
          const std::vector<float> whole = y.read();
          VN_EXPECT_OK(backend->rms_norm({.x = x.view(), .weight = norm.span(), .eps = kEps, .y = normed.view()}));
          VN_EXPECT_OK(backend->linear({normed.view(), {&output, 1}}));
          ASSERT_EQ(first_difference(whole, y.read()), whole.size())
              << format.name << ", " << dim << " columns, " << tokens << " tokens";
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, MlpConformance, testing::ValuesIn(all_backends()),
                         [](const auto& which) { return which.param.name(); });

}  // namespace
}  // namespace vernier::test
