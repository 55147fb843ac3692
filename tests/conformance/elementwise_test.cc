// Norms, gated activations and combine on every backend against double precision.
#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

#include "support/backends.h"
#include "support/random_weight.h"

namespace vernier::test {
namespace {

class ElementwiseConformance : public BackendFixture {};

TEST_P(ElementwiseConformance, RmsNorm) {
  Random random(1);
  for (const std::int64_t dim : {1, 15, 16, 17, 576, 4099}) {
    for (const std::int64_t tokens : {0, 1, 3}) {
      const std::vector<float> x = random.floats(tokens * dim, 3.0F);
      const std::vector<float> residual = random.floats(tokens * dim, 3.0F);
      const std::vector<float> weight = random.floats(dim, 2.0F);
      const bool with_weight = dim != 17;
      const bool with_residual = tokens == 3;
      const TestMatrix x_matrix(*backend_, tokens, dim, x);
      const TestMatrix residual_matrix(*backend_, tokens, dim, residual);
      const TestMatrix y_matrix(*backend_, tokens, dim);
      const TestVector weight_vector(*backend_, weight);
      const MatrixView residual_view = residual_matrix.view();
      RmsNormArgs args;
      args.x = x_matrix.view();
      if (with_weight) args.weight = weight_vector.span();
      args.eps = 1e-5F;
      args.y = dim == 16 ? args.x : y_matrix.view();  // in place
      if (with_residual) args.residual = &residual_view;
      VN_EXPECT_OK(backend_->rms_norm(args));
      const std::vector<float> y = dim == 16 ? x_matrix.read() : y_matrix.read();
      const std::vector<float> x_after = x_matrix.read();
      for (std::int64_t t = 0; t < tokens; ++t) {
        std::vector<float> row(x.begin() + t * dim, x.begin() + (t + 1) * dim);
        double squares = 0.0;
        for (std::int64_t i = 0; i < dim; ++i) {
          float& value = row[static_cast<std::size_t>(i)];
          if (with_residual) value += residual[static_cast<std::size_t>(t * dim + i)];
          squares += static_cast<double>(value) * value;
        }
        const double factor = 1.0 / std::sqrt(squares / static_cast<double>(dim) + 1e-5F);
        for (std::int64_t i = 0; i < dim; ++i) {
          const auto at = static_cast<std::size_t>(t * dim + i);
          const double expected =
              row[static_cast<std::size_t>(i)] * factor * (with_weight ? weight[static_cast<std::size_t>(i)] : 1.0);
          ASSERT_NEAR(y[at], expected, 1e-6 * std::fabs(expected)) << "dim " << dim;
          if (dim != 16) {
            ASSERT_EQ(x_after[at], row[static_cast<std::size_t>(i)]);
          }
        }
      }
    }
  }
}

double gelu_argument(double g) { return std::sqrt(2.0 / std::numbers::pi) * (g + 0.044715 * g * g * g); }

double activated(const ActivationSpec& spec, double g, double u) {
  const auto sigmoid = [](double x) { return 1.0 / (1.0 + std::exp(-x)); };
  if (spec.kind == Activation::kSilu) return g * sigmoid(g) * u;
  if (spec.kind == Activation::kGeluTanh) {
    return 0.5 * g * (1.0 + std::tanh(gelu_argument(g))) * u;
  }
  const double limit = spec.limit;
  const double limited = g > limit ? limit : g;
  const double up = u > limit ? limit : u < -limit ? -limit : u;
  return limited * sigmoid(static_cast<double>(spec.alpha) * limited) * (up + 1.0);
}

TEST_P(ElementwiseConformance, GatedActivation) {
  for (const Activation kind : {Activation::kSilu, Activation::kGeluTanh, Activation::kClampedSwiglu}) {
    ActivationSpec spec;
    spec.kind = kind;
    std::vector<float> gate;
    std::vector<float> up;
    for (int i = -400; i <= 400; ++i) {  // far into both tails
      gate.push_back(static_cast<float>(i) * 0.25F);
      up.push_back(static_cast<float>((i * 37) % 41) * 0.3F);
    }
    const auto count = static_cast<std::int64_t>(gate.size());
    const TestMatrix gate_matrix(*backend_, 1, count, gate);
    const TestMatrix up_matrix(*backend_, 1, count, up);
    VN_EXPECT_OK(backend_->gated_activation(
        {.spec = spec, .gate = gate_matrix.view(), .up = up_matrix.view(), .y = gate_matrix.view()}));
    const std::vector<float> y = gate_matrix.read();
    for (std::size_t i = 0; i < y.size(); ++i) {
      const double expected = activated(spec, gate[i], up[i]);
      // An fp32 exponential of x is off by about |x| 2^-24 for x's own rounding. Below 2^-52 of the factors anything
      // goes.
      const double x = kind == Activation::kGeluTanh ? 2.0 * gelu_argument(gate[i]) : 2.0 * gate[i];
      const double tolerance = (4.0 + 2.0 * std::fabs(x)) * 0x1p-23 * std::fabs(expected) +
                               0x1p-52 * std::fabs(static_cast<double>(gate[i]) * up[i]) + 1e-35;
      ASSERT_NEAR(y[i], expected, tolerance) << "gate " << gate[i] << ", kind " << static_cast<int>(kind);
    }
  }
}

TEST_P(ElementwiseConformance, CombineAddsAndOverwrites) {
  Random random(3);
  for (const std::int64_t cols : {33, 36, 1}) {
    constexpr std::int64_t kRows = 70;
    const std::vector<float> x = random.floats(kRows * cols);
    const std::vector<float> y = random.floats(kRows * cols);
    const TestMatrix x_matrix(*backend_, kRows, cols, x);
    const TestMatrix sum(*backend_, kRows, cols, y);
    VN_EXPECT_OK(backend_->combine({.x = x_matrix.view(), .y = sum.view(), .alpha = 2.0F, .beta = -0.5F}));
    const TestMatrix fresh(*backend_, kRows, cols);  // NaN
    VN_EXPECT_OK(backend_->combine({.x = x_matrix.view(), .y = fresh.view(), .alpha = 3.0F, .beta = 0.0F}));
    const std::vector<float> sums = sum.read();
    const std::vector<float> copies = fresh.read();
    for (std::size_t i = 0; i < x.size(); ++i) {
      EXPECT_NEAR(sums[i], 2.0 * x[i] - 0.5 * y[i], 1e-6);
      EXPECT_EQ(copies[i], 3.0F * x[i]);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, ElementwiseConformance, testing::ValuesIn(all_backends()),
                         [](const auto& parameter) { return parameter.param.name(); });

}  // namespace
}  // namespace vernier::test
