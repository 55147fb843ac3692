// The gated delta net on every backend against its recurrence, written out in double over whole sequences.
#include <gtest/gtest.h>

#include <cmath>

#include "support/backends.h"
#include "support/random_weight.h"

namespace vernier::test {
namespace {

constexpr std::int64_t kKeyHeads = 2;
constexpr std::int64_t kValueHeads = 6;
constexpr std::int64_t kKeyDim = 8;
constexpr std::int64_t kValueDim = 5;
constexpr std::int64_t kWidth = 4;
constexpr std::int64_t kChannels = 2 * kKeyHeads * kKeyDim + kValueHeads * kValueDim;
constexpr std::int64_t kOut = kValueHeads * kValueDim;
constexpr float kEps = 1e-6F;

/// Inputs of one sequence, and the weights.
struct Inputs {
  std::int64_t tokens = 0;
  std::vector<float> qkv, z, a, b;
  std::vector<float> convolution, rate, dt_bias, norm;

  Inputs(std::int64_t count, std::uint64_t seed) : tokens(count) {
    Random weights(7);  // the same for all sequences
    convolution = weights.floats(kChannels * kWidth);
    rate = weights.floats(kValueHeads);
    for (float& value : rate) value = -std::fabs(value) - 0.01F;
    dt_bias = weights.floats(kValueHeads);
    norm = weights.floats(kValueDim, 2.0F);
    Random random(seed);
    qkv = random.floats(count * kChannels, 2.0F);
    z = random.floats(count * kOut, 2.0F);
    a = random.floats(count * kValueHeads, 3.0F);
    b = random.floats(count * kValueHeads, 3.0F);
  }
};

double sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }

/// One channel's convolution at token t, with zeros before the sequence.
double convolved(const Inputs& in, std::int64_t t, std::int64_t channel) {
  double sum = 0.0;
  for (std::int64_t j = 0; j < kWidth; ++j) {
    const std::int64_t at = t - (kWidth - 1) + j;
    if (at < 0) continue;
    sum += static_cast<double>(in.convolution[static_cast<std::size_t>(channel * kWidth + j)]) *
           static_cast<double>(in.qkv[static_cast<std::size_t>(at * kChannels + channel)]);
  }
  return sum * sigmoid(sum);
}

std::vector<double> unit_vector(const Inputs& in, std::int64_t t, std::int64_t first_channel) {
  std::vector<double> x;
  double squares = 1e-6;
  for (std::int64_t i = 0; i < kKeyDim; ++i) {
    x.push_back(convolved(in, t, first_channel + i));
    squares += x.back() * x.back();
  }
  for (double& value : x) value /= std::sqrt(squares);
  return x;
}

/// The outputs of one value head for all tokens, [tokens, kValueDim].
std::vector<double> expected_head(const Inputs& in, std::int64_t head, bool tiled) {
  const std::int64_t key_head = tiled ? head % kKeyHeads : head / (kValueHeads / kKeyHeads);
  std::vector<std::vector<double>> state(kKeyDim, std::vector<double>(kValueDim, 0.0));
  std::vector<double> result;
  for (std::int64_t t = 0; t < in.tokens; ++t) {
    const std::vector<double> q = unit_vector(in, t, key_head * kKeyDim);
    const std::vector<double> k = unit_vector(in, t, (kKeyHeads + key_head) * kKeyDim);
    const auto at = static_cast<std::size_t>(t * kValueHeads + head);
    const auto h = static_cast<std::size_t>(head);
    const double raised = static_cast<double>(in.a[at]) + static_cast<double>(in.dt_bias[h]);
    const double decay = std::exp(static_cast<double>(in.rate[h]) * std::log(1.0 + std::exp(raised)));
    std::vector<double> out(kValueDim, 0.0);
    double squares = 0.0;
    for (std::size_t j = 0; j < kValueDim; ++j) {
      double predicted = 0.0;
      for (std::size_t i = 0; i < kKeyDim; ++i) predicted += decay * state[i][j] * k[i];
      const std::int64_t channel = 2 * kKeyHeads * kKeyDim + head * kValueDim + static_cast<std::int64_t>(j);
      const double delta = sigmoid(static_cast<double>(in.b[at])) * (convolved(in, t, channel) - predicted);
      for (std::size_t i = 0; i < kKeyDim; ++i) {
        state[i][j] = decay * state[i][j] + k[i] * delta;
        out[j] += state[i][j] * q[i] / std::sqrt(static_cast<double>(kKeyDim));
      }
      squares += out[j] * out[j];
    }
    for (std::size_t j = 0; j < kValueDim; ++j) {
      const auto gate = static_cast<double>(in.z[static_cast<std::size_t>(t * kOut + head * kValueDim) + j]);
      const double normed = out[j] / std::sqrt(squares / kValueDim + static_cast<double>(kEps));
      result.push_back(static_cast<double>(in.norm[j]) * normed * gate * sigmoid(gate));
    }
  }
  return result;
}

class DeltaNetConformance : public BackendFixture {
 protected:
  /// Zeroed memory for the states of `slots` sequences.
  [[nodiscard]] Buffer zeros(std::int64_t count) const {
    const std::vector<float> values(static_cast<std::size_t>(count), 0.0F);
    auto buffer = backend_->allocate(values.size() * sizeof(float));
    VN_EXPECT_OK(backend_->copy_to_device(buffer->data(), values.data(), values.size() * sizeof(float)));
    return std::move(*buffer);
  }

  /// Runs two sequences, the second in the lower slot, in steps of `chunk` tokens each; returns the first's outputs.
  std::vector<float> run(const Inputs& first, const Inputs& second, std::int64_t chunk, bool tiled);
};

std::vector<float> rows_of(const std::vector<float>& all, std::int64_t cols, std::int64_t begin, std::int64_t end) {
  return {all.begin() + begin * cols, all.begin() + end * cols};
}

std::vector<float> DeltaNetConformance::run(const Inputs& first, const Inputs& second, std::int64_t chunk, bool tiled) {
  const Buffer recurrent = zeros(2 * kValueHeads * kKeyDim * kValueDim);
  const Buffer convolution = zeros(2 * (kWidth - 1) * kChannels);
  const TestVector conv_weight(*backend_, first.convolution);
  const TestVector rate(*backend_, first.rate);
  const TestVector dt_bias(*backend_, first.dt_bias);
  const TestVector norm(*backend_, first.norm);
  std::vector<float> result;
  for (std::int64_t begin = 0; begin < first.tokens; begin += chunk) {
    const std::int64_t end = std::min(begin + chunk, first.tokens);
    const auto count = static_cast<std::int32_t>(end - begin);
    const auto both = [&](const std::vector<float> Inputs::*part, std::int64_t cols) {
      std::vector<float> rows = rows_of(first.*part, cols, begin, end);
      const std::vector<float> more = rows_of(second.*part, cols, begin, end);
      rows.insert(rows.end(), more.begin(), more.end());
      return TestMatrix(*backend_, 2 * count, cols, rows);
    };
    const TestMatrix qkv = both(&Inputs::qkv, kChannels);
    const TestMatrix z = both(&Inputs::z, kOut);
    const TestMatrix a = both(&Inputs::a, kValueHeads);
    const TestMatrix b = both(&Inputs::b, kValueHeads);
    const TestMatrix y(*backend_, 2 * count, kOut);
    const auto past = static_cast<std::int32_t>(begin);
    const SequenceSlice slices[] = {{0, count, past, {}, 1}, {count, count, past, {}, 0}};
    VN_EXPECT_OK(backend_->gated_delta_net({.qkv = qkv.view(),
                                            .z = z.view(),
                                            .a = a.view(),
                                            .b = b.view(),
                                            .key_heads = kKeyHeads,
                                            .value_heads = kValueHeads,
                                            .key_dim = kKeyDim,
                                            .value_dim = kValueDim,
                                            .conv_width = kWidth,
                                            .tiled_heads = tiled,
                                            .convolution_weight = conv_weight.span(),
                                            .decay_rate = rate.span(),
                                            .dt_bias = dt_bias.span(),
                                            .norm = norm.span(),
                                            .eps = kEps,
                                            .slices = slices,
                                            .recurrent = static_cast<float*>(recurrent.data()),
                                            .convolution = static_cast<float*>(convolution.data()),
                                            .y = y.view()}));
    const std::vector<float> rows = y.read();
    result.insert(result.end(), rows.begin(), rows.begin() + std::int64_t{count} * kOut);
  }
  return result;
}

TEST_P(DeltaNetConformance, FollowsTheRecurrenceInAnyChunks) {
  const Inputs first(11, 1);
  const Inputs second(11, 2);
  for (const bool tiled : {false, true}) {
    for (const std::int64_t chunk : {1, 2, 4, 11}) {
      const std::vector<float> y = run(first, second, chunk, tiled);
      for (std::int64_t head = 0; head < kValueHeads; ++head) {
        const std::vector<double> expected = expected_head(first, head, tiled);
        for (std::int64_t t = 0; t < first.tokens; ++t) {
          for (std::int64_t j = 0; j < kValueDim; ++j) {
            ASSERT_NEAR(y[static_cast<std::size_t>(t * kOut + head * kValueDim + j)],
                        expected[static_cast<std::size_t>(t * kValueDim + j)], 2e-5)
                << "chunk " << chunk << ", tiled " << tiled << ", head " << head << ", token " << t;
          }
        }
      }
    }
  }
}

TEST_P(DeltaNetConformance, ChunksAndThreadsChangeNothing) {
  const Inputs first(45, 1);
  const Inputs second(45, 2);
  const std::vector<float> whole = run(first, second, 45, false);
  for (const int threads : {1, 3}) {
    backend_ = make_backend(GetParam(), Precision::kBf16, threads);
    for (const std::int64_t chunk : {1, 3, 7, 33}) {
      EXPECT_EQ(run(first, second, chunk, false), whole) << "chunk " << chunk << ", " << threads << " threads";
    }
  }
}

TEST_P(DeltaNetConformance, SoftCap) {
  std::vector<float> x;
  for (int i = -60; i <= 60; ++i) x.push_back(static_cast<float>(i) * 3.3F);
  const TestMatrix y(*backend_, 1, static_cast<std::int64_t>(x.size()), x);
  VN_EXPECT_OK(backend_->soft_cap({y.view(), 30.0F}));
  const std::vector<float> found = y.read();
  for (std::size_t i = 0; i < x.size(); ++i) EXPECT_NEAR(found[i], 30.0 * std::tanh(x[i] / 30.0), 4e-6);
}

TEST_P(DeltaNetConformance, SigmoidGate) {
  Random random(4);
  const std::vector<float> values = random.floats(3 * 17, 5.0F);
  for (const std::int64_t cols : {17, 1}) {
    const std::vector<float> gates = random.floats(3 * cols, 60.0F);
    const TestMatrix gate(*backend_, 3, cols, gates);
    const TestMatrix y(*backend_, 3, 17, values);
    VN_EXPECT_OK(backend_->sigmoid_gate({gate.view(), y.view()}));
    const std::vector<float> found = y.read();
    for (std::size_t i = 0; i < values.size(); ++i) {
      const double expected = values[i] * sigmoid(static_cast<double>(gates[cols == 1 ? i / 17 : i]));
      EXPECT_NEAR(found[i], expected, 1e-6 * std::fabs(expected) + 1e-30);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, DeltaNetConformance, testing::ValuesIn(all_backends()),
                         [](const auto& parameter) { return parameter.param.name(); });

}  // namespace
}  // namespace vernier::test
