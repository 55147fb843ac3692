// Routing and the experts' MLP on every backend: ties, odd logits, experts with no, one and many tokens.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "format/decode.h"
#include "format/format_list.h"
#include "support/backends.h"
#include "support/random_weight.h"
#include "support/under_tool.h"

namespace vernier::test {
namespace {

class ExpertsConformance : public BackendTest<> {};

struct Routing {
  std::vector<std::int32_t> ids;
  std::vector<float> weights;
};

/// Routes tokens whose logits are `logits` [tokens, experts], through a unit matrix as router.
Routing route(Backend& backend, const std::vector<float>& logits, std::int64_t experts, RouteArgs args) {
  WeightSpec spec = {.format = find_plain_format(DType::kF32).value(),
                     .layout = WeightLayout::kPlain,
                     .rows = experts,
                     .cols = experts};
  const Weight router = random_weight(spec);
  for (std::int64_t r = 0; r < experts; ++r) {
    for (std::int64_t c = 0; c < experts; ++c) {
      const float value = r == c ? 1.0F : 0.0F;
      std::memcpy(mutable_codes(router) + r * router.row_stride + c * 4, &value, 4);
    }
  }
  const auto placed = backend.place(router);
  EXPECT_TRUE(placed);
  const std::int64_t tokens = static_cast<std::int64_t>(logits.size()) / experts;
  const TestMatrix x(backend, tokens, experts, logits);
  const auto count = static_cast<std::size_t>(tokens * args.top_k);
  const Buffer ids = backend.allocate(count * 4).value();
  const Buffer weights = backend.allocate(count * 4).value();
  args.x = x.view();
  args.router = &*placed;
  args.ids = static_cast<std::int32_t*>(ids.data());
  args.weights = static_cast<float*>(weights.data());
  VN_EXPECT_OK(backend.route_experts(args));
  VN_EXPECT_OK(backend.synchronize());
  Routing result = {std::vector<std::int32_t>(count), std::vector<float>(count)};
  VN_EXPECT_OK(backend.copy_to_host(result.ids.data(), ids.data(), count * 4));
  VN_EXPECT_OK(backend.copy_to_host(result.weights.data(), weights.data(), count * 4));
  return result;
}

TEST_P(ExpertsConformance, TiesGoToTheLowerExpert) {
  const auto backend = make_backend(GetParam(), Precision::kBf16);
  RouteArgs args;
  args.top_k = 3;
  const Routing routing =
      route(*backend, {1, 2, 2, 2, 1, 2, /**/ 0, 0, 0, 0, 0, 0, /**/ -9, -8, -7, -8, -9, -9}, 6, args);
  EXPECT_EQ(routing.ids, (std::vector<std::int32_t>{1, 2, 3, 0, 1, 2, 2, 1, 3}));
  EXPECT_NEAR(routing.weights[0], 1.0 / 3, 1e-7);
  const double total = 1.0 + 2.0 * std::exp(-1.0);
  EXPECT_NEAR(routing.weights[6], 1.0 / total, 1e-7);
  EXPECT_NEAR(routing.weights[7], std::exp(-1.0) / total, 1e-7);
}

TEST_P(ExpertsConformance, RulesBiasAndScale) {
  const auto backend = make_backend(GetParam(), Precision::kBf16);
  const TestVector bias(*backend, {0.0F, 0.0F, 5.0F, 0.0F});
  const TestVector scale(*backend, {1.0F, 2.0F, 3.0F, 4.0F});
  RouteArgs args;
  args.top_k = 2;
  args.bias = bias.span();
  args.expert_scale = scale.span();
  args.rule = RoutingRule::kSoftmaxAll;
  const Routing routing = route(*backend, {-300, -301, -304, -305}, 4, args);  // with the bias: -300 -301 -299 -305
  EXPECT_EQ(routing.ids, (std::vector<std::int32_t>{2, 0}));
  const double total = 1.0 + std::exp(-1.0) + std::exp(-2.0) + std::exp(-6.0);
  EXPECT_NEAR(routing.weights[0], 3.0 / total, 3e-7);
  EXPECT_NEAR(routing.weights[1], std::exp(-1.0) / total, 1e-7);
}

TEST_P(ExpertsConformance, LogitsAreNotRounded) {
  const auto backend = make_backend(GetParam(), Precision::kBf16);
  RouteArgs args;
  args.top_k = 1;
  const Routing routing = route(*backend, {1.0F, 1.0001F}, 2, args);  // equal in bf16
  EXPECT_EQ(routing.ids[0], 1);
}

TEST_P(ExpertsConformance, NanLogitsStillGiveValidExperts) {
  const auto backend = make_backend(GetParam(), Precision::kBf16);
  RouteArgs args;
  args.top_k = 2;
  const Routing routing = route(*backend, std::vector<float>(4, std::nanf("")), 4, args);
  EXPECT_NE(routing.ids[0], routing.ids[1]);
  for (const std::int32_t id : routing.ids) EXPECT_TRUE(id >= 0 && id < 4);
}

TEST_P(ExpertsConformance, RoutersOfEveryFormat) {
  const auto backend = make_backend(GetParam(), Precision::kBf16);
  constexpr std::int64_t kRouted = 19;
  for (const FormatCase& format : all_format_cases()) {
    const std::int64_t dim = format.cols_multiple == 1 ? 300 : format.cols_multiple * 2;
    const Weight router =
        random_weight({.format = format.format, .layout = format.layout, .rows = kRouted, .cols = dim});
    const Weight placed = backend->place(router).value();
    Random random(5);
    const std::vector<float> x = random.floats(3 * dim, 0.01F);
    const TestMatrix x_matrix(*backend, 3, dim, x);
    const Buffer ids = backend->allocate(3 * 4).value();
    const Buffer weights = backend->allocate(3 * 4).value();
    RouteArgs args;
    args.x = x_matrix.view();
    args.router = &placed;
    args.top_k = 1;
    args.rule = RoutingRule::kSoftmaxAll;
    args.ids = static_cast<std::int32_t*>(ids.data());
    args.weights = static_cast<float*>(weights.data());
    VN_EXPECT_OK(backend->route_experts(args));
    VN_EXPECT_OK(backend->synchronize());
    std::vector<std::int32_t> chosen(3);
    std::vector<float> probabilities(3);
    VN_EXPECT_OK(backend->copy_to_host(chosen.data(), ids.data(), 3 * 4));
    VN_EXPECT_OK(backend->copy_to_host(probabilities.data(), weights.data(), 3 * 4));
    std::vector<double> row(static_cast<std::size_t>(dim));
    for (std::int64_t t = 0; t < 3; ++t) {
      std::vector<double> logits;
      for (std::int64_t e = 0; e < kRouted; ++e) {
        decode_row_f64(router, e, 0, dim, row.data());
        logits.push_back(std::inner_product(row.begin(), row.end(), x.begin() + t * dim, 0.0));
      }
      const double most = *std::ranges::max_element(logits);
      double total = 0.0;
      for (const double logit : logits) total += std::exp(logit - most);
      const auto i = static_cast<std::size_t>(t);
      EXPECT_EQ(logits[static_cast<std::size_t>(chosen[i])], most) << format.name;
      EXPECT_NEAR(probabilities[i], 1.0 / total, 1e-4) << format.name;
    }
  }
}

/// Experts whose rows differ in the last bits of an F32, and inputs that differ so: one token, and many.
TEST_P(ExpertsConformance, RoutersOfF32AreNotRounded) {
  const auto backend = make_backend(GetParam(), Precision::kBf16);
  constexpr std::int64_t kRouted = 130;
  constexpr std::int64_t kDim = 192;
  const Weight router = random_weight({.format = find_plain_format(DType::kF32).value(),
                                       .layout = WeightLayout::kPlain,
                                       .rows = kRouted,
                                       .cols = kDim});
  for (std::int64_t e = 0; e < kRouted; ++e) {
    std::byte* const row = mutable_codes(router) + e * router.row_stride;
    std::memset(row, 0, kDim * 4);
    const float value = 1.0F + static_cast<float>(e * 37 % kRouted) * 0x1p-22F;
    std::memcpy(row + (e % 2 == 0 ? 70 : 9) * 4, &value, 4);
  }
  const Weight placed = backend->place(router).value();
  for (const std::int64_t tokens : {1, 400}) {
    std::vector<float> x(static_cast<std::size_t>(tokens * kDim), 1.0F);
    for (std::int64_t t = 0; t < tokens; t += 3) x[static_cast<std::size_t>(t * kDim + 9)] = 1.0F - 0x1p-15F;
    const TestMatrix x_matrix(*backend, tokens, kDim, x);
    const Buffer ids = backend->allocate(static_cast<std::size_t>(tokens * 8)).value();
    const Buffer weights = backend->allocate(static_cast<std::size_t>(tokens * 8)).value();
    RouteArgs args;
    args.x = x_matrix.view();
    args.router = &placed;
    args.top_k = 2;
    args.ids = static_cast<std::int32_t*>(ids.data());
    args.weights = static_cast<float*>(weights.data());
    VN_EXPECT_OK(backend->route_experts(args));
    VN_EXPECT_OK(backend->synchronize());
    std::vector<std::int32_t> chosen(static_cast<std::size_t>(tokens * 2));
    VN_EXPECT_OK(backend->copy_to_host(chosen.data(), ids.data(), chosen.size() * 4));
    for (std::int64_t t = 0; t < tokens; ++t) {
      std::vector<std::int64_t> expected;
      for (std::int64_t place = kRouted - 1; expected.size() < 2; --place) {
        const std::int64_t e = place * 123 % kRouted;  // 37 * 123 = 1 modulo 130
        if (t % 3 != 0 || e % 2 == 0) expected.push_back(e);
      }
      ASSERT_EQ(chosen[static_cast<std::size_t>(2 * t)], expected[0]) << t;
      ASSERT_EQ(chosen[static_cast<std::size_t>(2 * t + 1)], expected[1]) << t;
    }
  }
}

TEST_P(ExpertsConformance, RoutingDependsOnNoOtherToken) {
  const auto backend = make_backend(GetParam(), Precision::kBf16);
  // More than are few, and a last group that is not full.
  const std::int64_t num_tokens = is_under_racecheck() ? 215 : 345;
  const std::int64_t num_again = is_under_racecheck() ? 41 : num_tokens;
  constexpr std::int64_t kRouted = 150;
  constexpr std::int32_t kChosen = 6;
  const Buffer ids = backend->allocate(num_tokens * kChosen * 4).value();
  const Buffer weights = backend->allocate(num_tokens * kChosen * 4).value();
  for (const DType dtype : {DType::kBF16, DType::kF32}) {
    for (const std::int64_t dim : {std::int64_t{1088}, std::int64_t{331}}) {  // whole pieces for every thread, and not
      const WeightSpec spec = {
          .format = find_plain_format(dtype).value(), .layout = WeightLayout::kPlain, .rows = kRouted, .cols = dim};
      const Weight router = backend->place(random_weight(spec)).value();
      Random random(8);
      const TestMatrix x(*backend, num_tokens, dim, random.floats(num_tokens * dim, 0.01F));
      const auto route_rows = [&](std::int64_t first, std::int64_t count) {
        RouteArgs args;
        args.x = x.view().slice_rows(first, count);
        args.router = &router;
        args.top_k = kChosen;
        args.ids = static_cast<std::int32_t*>(ids.data()) + first * kChosen;
        args.weights = static_cast<float*>(weights.data()) + first * kChosen;
        VN_EXPECT_OK(backend->route_experts(args));
      };
      const auto fetch = [&] {
        Routing result = {std::vector<std::int32_t>(num_tokens * kChosen), std::vector<float>(num_tokens * kChosen)};
        VN_EXPECT_OK(backend->synchronize());
        VN_EXPECT_OK(backend->copy_to_host(result.ids.data(), ids.data(), num_tokens * kChosen * 4));
        VN_EXPECT_OK(backend->copy_to_host(result.weights.data(), weights.data(), num_tokens * kChosen * 4));
        return result;
      };
      route_rows(0, num_tokens);
      const Routing together = fetch();
      for (std::int64_t t = 0; t < num_again; t += t < 5 ? 1 : 12)  // the others' results stay there
        route_rows(t, t < 5 ? 1 : std::min<std::int64_t>(12, num_tokens - t));
      const Routing apart = fetch();
      EXPECT_EQ(together.ids, apart.ids) << dim;
      EXPECT_EQ(together.weights, apart.weights) << dim;
    }
  }
}

TEST_P(ExpertsConformance, NormOfTheRoutersInput) {
  const auto backend = make_backend(GetParam(), Precision::kBf16);
  constexpr std::int64_t kTokens = 9;
  constexpr std::int32_t kChosen = 4;
  const Buffer ids = backend->allocate(kTokens * kChosen * 4).value();
  const Buffer weights = backend->allocate(kTokens * kChosen * 4).value();
  struct Shape {
    std::int64_t experts;
    std::int64_t dim;
  };
  for (const Shape shape : {Shape{128, 2048}, Shape{32, 2880}, Shape{250, 320}, Shape{9, 331}}) {
    const WeightSpec spec = {.format = find_plain_format(DType::kBF16).value(),
                             .layout = WeightLayout::kPlain,
                             .rows = shape.experts,
                             .cols = shape.dim};
    const Weight router = backend->place(random_weight(spec)).value();
    Random random(8);
    const TestMatrix x(*backend, kTokens, shape.dim, random.floats(kTokens * shape.dim, 3.0F));
    const TestVector factors(*backend, random.floats(shape.dim, 1.0F));
    const TestMatrix normed(*backend, kTokens, shape.dim);
    RouteArgs args;
    args.router = &router;
    args.top_k = kChosen;
    args.ids = static_cast<std::int32_t*>(ids.data());
    args.weights = static_cast<float*>(weights.data());
    const auto fetch = [&](std::int64_t tokens) {
      const auto count = static_cast<std::size_t>(tokens * kChosen);
      Routing result = {std::vector<std::int32_t>(count), std::vector<float>(count)};
      VN_EXPECT_OK(backend->synchronize());
      VN_EXPECT_OK(backend->copy_to_host(result.ids.data(), ids.data(), count * 4));
      VN_EXPECT_OK(backend->copy_to_host(result.weights.data(), weights.data(), count * 4));
      return result;
    };
    for (const std::int64_t tokens : {std::int64_t{1}, kTokens}) {
      const MatrixView y = normed.view().slice_rows(0, tokens);
      const RmsNormArgs norm = {.x = x.view().slice_rows(0, tokens), .weight = factors.span(), .eps = 1e-6F, .y = y};
      VN_EXPECT_OK(backend->rms_norm(norm));
      args.x = y;
      args.norm = {};
      VN_EXPECT_OK(backend->route_experts(args));
      const Routing expected = fetch(tokens);
      const auto written = [&] {
        std::vector<float> rows = normed.read();
        rows.resize(static_cast<std::size_t>(tokens * shape.dim));
        return rows;
      };
      const std::vector<float> rows = written();
      args.x = norm.x;
      args.norm = {norm.weight, norm.eps, y};
      VN_EXPECT_OK(backend->route_experts(args));
      const Routing routing = fetch(tokens);
      EXPECT_EQ(routing.ids, expected.ids) << shape.dim << " " << tokens;
      EXPECT_EQ(routing.weights, expected.weights) << shape.dim << " " << tokens;
      EXPECT_EQ(written(), rows) << shape.dim << " " << tokens;
    }
  }
}

// --- expert_mlp ------------------------------------------------------------------------------------------------------

constexpr std::int64_t kExperts = 5;
constexpr std::int64_t kTopK = 2;

struct ExpertCase {
  FormatCase format;
  Precision precision = Precision::kF32;
  Activation activation = Activation::kSilu;
  bool bias = false;
  std::vector<std::int32_t> ids = {};  ///< [tokens, kTopK]
  std::int64_t dim = 0;                ///< 0: a few values, as ff
  std::int64_t ff = 0;
};

/// The host's view of an expert bank and of its placed copy.
struct Bank {
  ExpertWeights host;
  ExpertWeights placed;
  std::vector<std::vector<float>> biases;
  std::vector<TestVector> bias_vectors;
};

Bank make_bank(Backend& backend, const ExpertCase& test, std::int64_t dim, std::int64_t ff) {
  Bank bank;
  Random random(99);
  std::uint64_t seed = 1;
  const auto make = [&](std::int64_t rows, std::int64_t cols, std::vector<Weight>& host, std::vector<Weight>& placed) {
    WeightSpec spec = {.format = test.format.format, .layout = test.format.layout, .rows = rows, .cols = cols};
    spec.outer = static_cast<OuterKind>(seed % 4);  // each expert its own second-level scale
    spec.seed = seed++;
    host.push_back(random_weight(spec));
    placed.push_back(backend.place(host.back()).value());
  };
  for (std::int64_t e = 0; e < kExperts; ++e) {
    make(ff, dim, bank.host.gate, bank.placed.gate);
    make(ff, dim, bank.host.up, bank.placed.up);
    make(dim, ff, bank.host.down, bank.placed.down);
  }
  if (!test.bias) return bank;
  for (auto* list : {&bank.placed.gate_bias, &bank.placed.up_bias, &bank.placed.down_bias}) {
    const std::int64_t size = list == &bank.placed.down_bias ? dim : ff;
    for (std::int64_t e = 0; e < kExperts; ++e) {
      bank.biases.push_back(random.floats(size, 0.1F));
      bank.bias_vectors.emplace_back(backend, bank.biases.back());
      list->push_back(bank.bias_vectors.back().span());
    }
  }
  return bank;
}

/// weight * x, with the scale and an optional bias, in double; `spread` [rows] gets the largest |w x| of each row.
std::vector<double> product(const Weight& weight, const std::vector<double>& x, const float* bias,
                            std::vector<double>* magnitude, std::vector<double>* largest) {
  std::vector<double> y;
  std::vector<double> row(static_cast<std::size_t>(weight.cols));
  for (std::int64_t n = 0; n < weight.rows; ++n) {
    decode_row_f64(weight, n, 0, weight.cols, row.data());
    double factor = 1.0;
    if (!weight.outer.empty()) {
      factor = weight.outer.values[weight.outer.per_row() ? static_cast<std::size_t>(n) : 0];
      if (weight.outer.divides) factor = 1.0 / factor;
    }
    double sum = 0.0;
    double total = 0.0;
    double most = 0.0;
    for (std::size_t k = 0; k < row.size(); ++k) {
      sum += row[k] * x[k];
      total += std::fabs(row[k] * x[k]);
      most = std::max(most, std::fabs(row[k] * x[k]));
    }
    y.push_back(sum * factor + (bias != nullptr ? bias[n] : 0.0F));
    if (magnitude != nullptr) magnitude->push_back(total * factor);
    if (largest != nullptr) largest->push_back(most * factor);
  }
  return y;
}

double silu_or_swiglu(Activation kind, double g, double u) {
  const auto sigmoid = [](double x) { return 1.0 / (1.0 + std::exp(-x)); };
  if (kind == Activation::kSilu) return g * sigmoid(g) * u;
  return std::min(g, 7.0) * sigmoid(1.702 * std::min(g, 7.0)) * (std::clamp(u, -7.0, 7.0) + 1.0);
}

void check_experts(Backend& backend, const ExpertCase& test) {
  const std::int64_t multiple = test.format.cols_multiple;
  const std::int64_t dim = test.dim > 0 ? test.dim : multiple == 1 ? 40 : multiple;
  const std::int64_t ff = test.ff > 0 ? test.ff : multiple == 1 ? 24 : multiple;
  const Bank bank = make_bank(backend, test, dim, ff);
  const auto tokens = static_cast<std::int64_t>(test.ids.size()) / kTopK;
  Random random(7);
  const std::vector<float> x = random.floats(tokens * dim);
  const std::vector<float> before = random.floats(tokens * dim);
  std::vector<float> weights;
  for (std::size_t i = 0; i < test.ids.size(); ++i) weights.push_back(0.3F + 0.1F * static_cast<float>(i % 5));
  const TestMatrix x_matrix(backend, tokens, dim, x);
  const TestMatrix y_matrix(backend, tokens, dim, before);
  const TestVector weight_vector(backend, weights);
  const Buffer ids = backend.allocate(test.ids.size() * 4).value();
  VN_EXPECT_OK(backend.copy_to_device(ids.data(), test.ids.data(), test.ids.size() * 4));
  ExpertMlpArgs args;
  args.x = x_matrix.view();
  args.experts = &bank.placed;
  args.activation.kind = test.activation;
  args.top_k = kTopK;
  args.ids = static_cast<const std::int32_t*>(ids.data());
  args.weights = weight_vector.span().data();
  args.y = y_matrix.view();
  VN_EXPECT_OK(backend.expert_mlp(args));
  const std::vector<float> y = y_matrix.read();

  for (std::int64_t t = 0; t < tokens; ++t) {
    std::vector<double> input;
    for (std::int64_t i = 0; i < dim; ++i) {
      input.push_back(rounded_input(x[static_cast<std::size_t>(t * dim + i)], test.precision));
    }
    std::vector<double> expected(before.begin() + t * dim, before.begin() + (t + 1) * dim);
    std::vector<double> bound(expected.size(), 1e-6);
    for (std::int64_t j = 0; j < kTopK; ++j) {
      const std::int32_t id = test.ids[static_cast<std::size_t>(t * kTopK + j)];
      if (id == -1) continue;
      const auto e = static_cast<std::size_t>(id);
      const auto bias = [&](std::size_t which) {
        return test.bias ? bank.biases[which * kExperts + e].data() : nullptr;
      };
      const std::vector<double> gate = product(bank.host.gate[e], input, bias(0), nullptr, nullptr);
      const std::vector<double> up = product(bank.host.up[e], input, bias(1), nullptr, nullptr);
      std::vector<double> hidden;
      for (std::size_t i = 0; i < gate.size(); ++i) {
        hidden.push_back(
            rounded_input(static_cast<float>(silu_or_swiglu(test.activation, gate[i], up[i])), test.precision));
      }
      std::vector<double> magnitude;
      std::vector<double> largest;
      const std::vector<double> down = product(bank.host.down[e], hidden, bias(2), &magnitude, &largest);
      const double weight = weights[static_cast<std::size_t>(t * kTopK + j)];
      for (std::size_t i = 0; i < down.size(); ++i) {
        expected[i] += weight * down[i];
        // Hidden values carry fp32 errors of two products; in bf16 one of them may also round to the other neighbour.
        bound[i] += weight * (1e-5 * magnitude[i] + (test.precision == Precision::kBf16 ? 0x1p-6 * largest[i] : 0.0));
      }
    }
    for (std::size_t i = 0; i < expected.size(); ++i) {
      ASSERT_NEAR(y[static_cast<std::size_t>(t * dim) + i], expected[i], bound[i])
          << test.format.name << ", token " << t << ", column " << i;
    }
  }
}

TEST_P(ExpertsConformance, MlpOfEveryFormat) {
  for (const Precision precision : {Precision::kF32, Precision::kBf16}) {
    const auto backend = make_backend(GetParam(), precision);
    for (const FormatCase& format : all_format_cases()) {
      if (format.cols_multiple > 64) continue;  // 256 x 256 experts: slow for the oracle, and nothing new
      ExpertCase test = {.format = format, .precision = precision};
      test.ids = {4, 1, 1, 4, 1, 0};  // expert 1 has three tokens, 4 two, 0 one, 2 and 3 none
      check_experts(*backend, test);
      if (HasFatalFailure()) return;
    }
  }
}

TEST_P(ExpertsConformance, ChoicesComputedElsewhereAddNothing) {
  for (const Precision precision : {Precision::kF32, Precision::kBf16}) {
    const auto backend = make_backend(GetParam(), precision);
    for (const FormatCase& format : all_format_cases()) {
      if (format.cols_multiple > 64 || (is_brief(format) && precision == Precision::kBf16)) continue;
      ExpertCase test = {.format = format, .precision = precision};
      for (const std::vector<std::int32_t>& ids :
           {std::vector<std::int32_t>{-1, -1}, {-1, 3}, {2, -1}, {-1, 1, -1, -1, 1, 4, 0, -1}}) {
        test.ids = ids;
        check_experts(*backend, test);
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_P(ExpertsConformance, MlpWithBiasesAndClampedActivation) {
  for (const Precision precision : {Precision::kF32, Precision::kBf16}) {
    const auto backend = make_backend(GetParam(), precision);
    for (const FormatCase& format : all_format_cases()) {
      if (format.cols_multiple > 64) continue;
      for (const std::int64_t tokens : {0, 1, 17}) {
        ExpertCase test = {
            .format = format, .precision = precision, .activation = Activation::kClampedSwiglu, .bias = true};
        for (std::int32_t i = 0; i < tokens; ++i) {
          test.ids.push_back(i % 3);
          test.ids.push_back(3 + i % 2);
        }
        check_experts(*backend, test);
        if (HasFatalFailure()) return;
      }
    }
  }
}

// Rows that are read in several parts, of which the last isn't whole.
TEST_P(ExpertsConformance, MlpOfWideExperts) {
  const auto backend = make_backend(GetParam(), Precision::kBf16);
  for (const FormatCase& format : all_format_cases()) {
    if (format.cols_multiple == 1 || format.cols_multiple > 64) continue;
    ExpertCase test = {.format = format, .precision = Precision::kBf16, .bias = true};
    test.dim = 320;
    test.ff = 1088;
    for (const std::vector<std::int32_t>& ids : {std::vector<std::int32_t>{3, 1}, {2, 4, 0, 2, 2, 1}}) {
      test.ids = ids;
      check_experts(*backend, test);
      if (HasFatalFailure()) return;
    }
  }
}

/// Copies of two weights of one shape whose rows take turns.
std::pair<Weight, Weight> interleave(const Weight& gate, const Weight& up) {
  const std::int64_t codes = 2 * gate.rows * gate.row_stride;
  const auto bytes =
      std::make_shared<std::vector<std::byte>>(static_cast<std::size_t>(codes + 2 * gate.rows * gate.scale_stride));
  const auto view = [&](const Weight& from, std::int64_t first) {
    Weight to = from;
    to.codes = bytes->data() + first * from.row_stride;
    to.row_stride *= 2;
    if (from.scales != nullptr) to.scales = bytes->data() + codes + first * from.scale_stride;
    to.scale_stride *= 2;
    to.owner = bytes;
    for (std::int64_t r = 0; r < from.rows; ++r) {
      std::memcpy(mutable_codes(to) + r * to.row_stride, from.row_codes(r), static_cast<std::size_t>(from.row_stride));
      if (from.scales == nullptr) continue;
      std::memcpy(mutable_scales(to) + r * to.scale_stride, from.row_scales(r),
                  static_cast<std::size_t>(from.scale_stride));
    }
    return to;
  };
  return {view(gate, 0), view(up, 1)};
}

TEST_P(ExpertsConformance, GateAndUpWhoseRowsTakeTurns) {
  const auto backend = make_backend(GetParam(), Precision::kBf16);
  constexpr std::int64_t kDim = 192;
  constexpr std::int64_t kWidth = 128;
  for (const FormatCase& format : all_format_cases()) {
    if (format.cols_multiple > 64) continue;
    const auto make = [&](std::int64_t rows, std::int64_t cols, std::uint64_t seed) {
      WeightSpec spec = {.format = format.format, .layout = format.layout, .rows = rows, .cols = cols};
      spec.seed = seed;
      return random_weight(spec);
    };
    const Weight gate = make(kWidth, kDim, 1);
    const Weight up = make(kWidth, kDim, 2);
    if (gate.scale_block_rows != 1) continue;
    const Weight down = backend->place(make(kDim, kWidth, 3)).value();
    const auto [gate_rows, up_rows] = interleave(gate, up);
    const auto run = [&](const Weight& first, const Weight& second, std::int64_t tokens) {
      ExpertWeights bank;
      bank.gate = {backend->place(first).value()};
      bank.up = {backend->place(second).value()};
      bank.down = {down};
      Random random(3);
      const TestMatrix x(*backend, tokens, kDim, random.floats(tokens * kDim));
      const TestMatrix y(*backend, tokens, kDim, random.floats(tokens * kDim));
      const TestVector weights(*backend, std::vector<float>(static_cast<std::size_t>(tokens), 0.5F));
      const std::vector<std::int32_t> chosen(static_cast<std::size_t>(tokens), 0);
      const Buffer ids = backend->allocate(chosen.size() * 4).value();
      VN_EXPECT_OK(backend->copy_to_device(ids.data(), chosen.data(), chosen.size() * 4));
      ExpertMlpArgs args;
      args.x = x.view();
      args.experts = &bank;
      args.top_k = 1;
      args.ids = static_cast<const std::int32_t*>(ids.data());
      args.weights = weights.span().data();
      args.y = y.view();
      VN_EXPECT_OK(backend->expert_mlp(args));
      return y.read();
    };
    for (const std::int64_t tokens : {1, 3, 20}) {
      EXPECT_EQ(run(gate_rows, up_rows, tokens), run(gate, up, tokens)) << format.name << ", " << tokens << " tokens";
    }
  }
}

TEST_P(ExpertsConformance, UnknownExpertIsAnError) {
  const auto backend = make_backend(GetParam(), Precision::kF32);
  if (backend->name() != "reference" && backend->name() != "cpu") GTEST_SKIP() << "ids live on the device";
  ExpertCase test = {.format = all_format_cases()[0]};
  const Bank bank = make_bank(*backend, test, 8, 8);
  const TestMatrix x(*backend, 1, 8, std::vector<float>(8));
  const std::int32_t ids[] = {0, 5};
  const float weights[] = {1.0F, 1.0F};
  ExpertMlpArgs args;
  args.x = x.view();
  args.experts = &bank.placed;
  args.top_k = kTopK;
  args.ids = ids;
  args.weights = weights;
  args.y = x.view();
  EXPECT_FALSE(backend->expert_mlp(args));
}

INSTANTIATE_TEST_SUITE_P(All, ExpertsConformance, testing::ValuesIn(all_backends()),
                         [](const auto& parameter) { return parameter.param.name(); });

}  // namespace
}  // namespace vernier::test
