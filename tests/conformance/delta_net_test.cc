// The gated delta net on every backend against its recurrence, written out in double over whole sequences.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "support/backends.h"
#include "support/random_weight.h"
#include "support/under_tool.h"

namespace vernier::test {
namespace {

constexpr float kEps = 1e-6F;

struct Shape {
  std::int64_t key_heads, value_heads, key_dim, value_dim, width;
  bool tiled = false;
  [[nodiscard]] std::int64_t out() const { return value_heads * value_dim; }
  [[nodiscard]] std::int64_t channels() const { return 2 * key_heads * key_dim + out(); }
  [[nodiscard]] std::int64_t key_head_of(std::int64_t head) const {
    return tiled ? head % key_heads : head / (value_heads / key_heads);
  }
};

constexpr Shape kSmall = {2, 6, 8, 5, 4};
constexpr Shape kPublished = {1, 2, 128, 128, 4};  // fewer heads than any model's

struct Weights {
  std::vector<float> convolution, rate, dt_bias, norm;

  explicit Weights(const Shape& shape) {
    Random random(7);
    convolution = random.floats(shape.channels() * shape.width);
    rate = random.floats(shape.value_heads);
    for (float& value : rate) value = -std::fabs(value) - 0.01F;
    dt_bias = random.floats(shape.value_heads);
    norm = random.floats(shape.value_dim, 2.0F);
  }
};

/// Inputs of one sequence.
struct Inputs {
  std::int64_t tokens = 0;
  std::vector<float> qkv, z, a, b;

  Inputs(const Shape& shape, std::int64_t count, std::uint64_t seed) : tokens(count) {
    Random random(seed);
    qkv = random.floats(count * shape.channels(), 2.0F);
    z = random.floats(count * shape.out(), 2.0F);
    a = random.floats(count * shape.value_heads, 3.0F);
    b = random.floats(count * shape.value_heads, 3.0F);
  }
};

double sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }

/// The recurrence of one sequence, written out.
struct Oracle {
  const Shape& shape;
  const Weights& weights;
  const Inputs& in;

  /// One channel's convolution at token t, with zeros before the sequence.
  [[nodiscard]] double convolved(std::int64_t t, std::int64_t channel) const {
    double sum = 0.0;
    for (std::int64_t j = 0; j < shape.width; ++j) {
      const std::int64_t at = t - (shape.width - 1) + j;
      if (at < 0) continue;
      sum += static_cast<double>(weights.convolution[static_cast<std::size_t>(channel * shape.width + j)]) *
             static_cast<double>(in.qkv[static_cast<std::size_t>(at * shape.channels() + channel)]);
    }
    return sum * sigmoid(sum);
  }

  [[nodiscard]] std::vector<double> unit_vector(std::int64_t t, std::int64_t first_channel) const {
    std::vector<double> x;
    double squares = 1e-6;
    for (std::int64_t i = 0; i < shape.key_dim; ++i) {
      x.push_back(convolved(t, first_channel + i));
      squares += x.back() * x.back();
    }
    for (double& value : x) value /= std::sqrt(squares);
    return x;
  }

  /// The outputs of one value head for all tokens, [tokens, value_dim].
  [[nodiscard]] std::vector<double> head_outputs(std::int64_t head) const {
    const std::int64_t key_head = shape.key_head_of(head);
    const auto key_dim = static_cast<std::size_t>(shape.key_dim);
    const auto value_dim = static_cast<std::size_t>(shape.value_dim);
    std::vector<std::vector<double>> state(key_dim, std::vector<double>(value_dim, 0.0));
    std::vector<double> result;
    for (std::int64_t t = 0; t < in.tokens; ++t) {
      const std::vector<double> q = unit_vector(t, key_head * shape.key_dim);
      const std::vector<double> k = unit_vector(t, (shape.key_heads + key_head) * shape.key_dim);
      const auto at = static_cast<std::size_t>(t * shape.value_heads + head);
      const auto h = static_cast<std::size_t>(head);
      const double raised = static_cast<double>(in.a[at]) + static_cast<double>(weights.dt_bias[h]);
      const double decay = std::exp(static_cast<double>(weights.rate[h]) * std::log(1.0 + std::exp(raised)));
      std::vector<double> out(value_dim, 0.0);
      double squares = 0.0;
      for (std::size_t j = 0; j < value_dim; ++j) {
        double predicted = 0.0;
        for (std::size_t i = 0; i < key_dim; ++i) predicted += decay * state[i][j] * k[i];
        const std::int64_t channel =
            2 * shape.key_heads * shape.key_dim + head * shape.value_dim + static_cast<std::int64_t>(j);
        const double delta = sigmoid(static_cast<double>(in.b[at])) * (convolved(t, channel) - predicted);
        for (std::size_t i = 0; i < key_dim; ++i) {
          state[i][j] = decay * state[i][j] + k[i] * delta;
          out[j] += state[i][j] * q[i] / std::sqrt(static_cast<double>(shape.key_dim));
        }
        squares += out[j] * out[j];
      }
      for (std::size_t j = 0; j < value_dim; ++j) {
        const auto gate =
            static_cast<double>(in.z[static_cast<std::size_t>(t * shape.out() + head * shape.value_dim) + j]);
        const double normed = out[j] / std::sqrt(squares / static_cast<double>(value_dim) + static_cast<double>(kEps));
        result.push_back(static_cast<double>(weights.norm[j]) * normed * gate * sigmoid(gate));
      }
    }
    return result;
  }
};

/// How many tokens of a sequence each step takes; none once it has no more.
using Cut = std::vector<std::int64_t>;
Cut pieces_of(std::int64_t tokens, std::int64_t length) {
  Cut cut;
  for (; tokens > 0; tokens -= length) cut.push_back(std::min(tokens, length));
  return cut;
}

class DeltaNetConformance : public BackendFixture {
 protected:
  /// Memory for the states of sequences, as others may have left it: what has no past must not read it.
  [[nodiscard]] Buffer left_over(std::int64_t count) const {
    const std::vector<float> values(static_cast<std::size_t>(count), std::numeric_limits<float>::quiet_NaN());
    auto buffer = backend_->allocate(values.size() * sizeof(float));
    VN_EXPECT_OK(backend_->copy_to_device(buffer->data(), values.data(), values.size() * sizeof(float)));
    return std::move(*buffer);
  }

  /// Runs sequences together, each cut as its Cut says and the later ones in the lower slots; returns their outputs.
  std::vector<std::vector<float>> run(const Shape& shape, const std::vector<Inputs>& sequences,
                                      const std::vector<Cut>& cuts);
  void expect_recurrence(const Shape& shape, const std::vector<Inputs>& sequences, const std::vector<Cut>& cuts);
};

std::vector<std::vector<float>> DeltaNetConformance::run(const Shape& shape, const std::vector<Inputs>& sequences,
                                                         const std::vector<Cut>& cuts) {
  const auto num_sequences = static_cast<std::int64_t>(sequences.size());
  const Weights weights(shape);
  const Buffer recurrent = left_over(num_sequences * shape.value_heads * shape.key_dim * shape.value_dim);
  const Buffer convolution = left_over(num_sequences * (shape.width - 1) * shape.channels());
  const TestVector conv_weight(*backend_, weights.convolution);
  const TestVector rate(*backend_, weights.rate);
  const TestVector dt_bias(*backend_, weights.dt_bias);
  const TestVector norm(*backend_, weights.norm);
  std::vector<std::vector<float>> result(sequences.size());
  std::vector<std::int64_t> done(sequences.size(), 0);
  std::size_t num_steps = 0;
  for (const Cut& cut : cuts) num_steps = std::max(num_steps, cut.size());
  for (std::size_t step = 0; step < num_steps; ++step) {
    std::vector<SequenceSlice> slices;
    std::int64_t rows = 0;
    for (std::size_t i = 0; i < sequences.size(); ++i) {
      const std::int64_t count = step < cuts[i].size() ? cuts[i][step] : 0;
      slices.push_back({static_cast<std::int32_t>(rows),
                        static_cast<std::int32_t>(count),
                        static_cast<std::int32_t>(done[i]),
                        {},
                        static_cast<std::int32_t>(num_sequences - 1) - static_cast<std::int32_t>(i)});
      rows += count;
    }
    const auto gather = [&](const std::vector<float> Inputs::*part, std::int64_t cols) {
      std::vector<float> values;
      for (std::size_t i = 0; i < sequences.size(); ++i) {
        const auto from = (sequences[i].*part).begin() + done[i] * cols;
        values.insert(values.end(), from, from + slices[i].num_tokens * cols);
      }
      return TestMatrix(*backend_, rows, cols, values);
    };
    const TestMatrix qkv = gather(&Inputs::qkv, shape.channels());
    const TestMatrix z = gather(&Inputs::z, shape.out());
    const TestMatrix a = gather(&Inputs::a, shape.value_heads);
    const TestMatrix b = gather(&Inputs::b, shape.value_heads);
    const TestMatrix y(*backend_, rows, shape.out());
    VN_EXPECT_OK(backend_->gated_delta_net({.qkv = qkv.view(),
                                            .z = z.view(),
                                            .a = a.view(),
                                            .b = b.view(),
                                            .key_heads = static_cast<std::int32_t>(shape.key_heads),
                                            .value_heads = static_cast<std::int32_t>(shape.value_heads),
                                            .key_dim = static_cast<std::int32_t>(shape.key_dim),
                                            .value_dim = static_cast<std::int32_t>(shape.value_dim),
                                            .conv_width = static_cast<std::int32_t>(shape.width),
                                            .tiled_heads = shape.tiled,
                                            .convolution_weight = conv_weight.span(),
                                            .decay_rate = rate.span(),
                                            .dt_bias = dt_bias.span(),
                                            .norm = norm.span(),
                                            .eps = kEps,
                                            .slices = slices,
                                            .recurrent = static_cast<float*>(recurrent.data()),
                                            .convolution = static_cast<float*>(convolution.data()),
                                            .y = y.view()}));
    const std::vector<float> found = y.read();
    for (std::size_t i = 0; i < sequences.size(); ++i) {
      const auto from = found.begin() + slices[i].first_row * shape.out();
      result[i].insert(result[i].end(), from, from + slices[i].num_tokens * shape.out());
      done[i] += slices[i].num_tokens;
    }
  }
  return result;
}

void DeltaNetConformance::expect_recurrence(const Shape& shape, const std::vector<Inputs>& sequences,
                                            const std::vector<Cut>& cuts) {
  const Weights weights(shape);
  const std::vector<std::vector<float>> found = run(shape, sequences, cuts);
  for (std::size_t i = 0; i < sequences.size(); ++i) {
    for (std::int64_t head = 0; head < shape.value_heads; ++head) {
      const std::vector<double> expected = Oracle{shape, weights, sequences[i]}.head_outputs(head);
      for (std::int64_t t = 0; t < sequences[i].tokens; ++t) {
        for (std::int64_t j = 0; j < shape.value_dim; ++j) {
          ASSERT_NEAR(found[i][static_cast<std::size_t>(t * shape.out() + head * shape.value_dim + j)],
                      expected[static_cast<std::size_t>(t * shape.value_dim + j)], 2e-5)
              << "sequence " << i << ", tiled " << shape.tiled << ", head " << head << ", token " << t;
        }
      }
    }
  }
}

TEST_P(DeltaNetConformance, FollowsTheRecurrenceInAnyChunks) {
  const std::vector<Inputs> sequences = {{kSmall, 11, 1}, {kSmall, 11, 2}};
  for (const bool tiled : {false, true}) {
    Shape shape = kSmall;
    shape.tiled = tiled;
    for (const std::int64_t chunk : {1, 2, 4, 11}) {
      expect_recurrence(shape, sequences, {pieces_of(11, chunk), pieces_of(11, chunk)});
    }
  }
}

TEST_P(DeltaNetConformance, FollowsTheRecurrenceInOtherShapes) {
  constexpr Shape kShapes[] = {
      kPublished, {1, 3, 64, 32, 2}, {2, 2, 96, 36, 4}, {1, 1, 200, 40, 7}, {1, 1, 20, 130, 16}};
  for (const Shape& shape : kShapes) {
    const std::vector<Inputs> sequences = {{shape, 19, 1}, {shape, 6, 2}};
    expect_recurrence(shape, sequences, {pieces_of(19, 19), pieces_of(6, 6)});
    expect_recurrence(shape, sequences, {pieces_of(19, 1), pieces_of(6, 1)});
    expect_recurrence(shape, sequences, {pieces_of(19, 17), pieces_of(6, 1)});
  }
}

TEST_P(DeltaNetConformance, ChunksAndThreadsChangeNothing) {
  const std::vector<Inputs> sequences = {{kSmall, 45, 1}, {kSmall, 45, 2}};
  const auto whole = run(kSmall, sequences, {pieces_of(45, 45), pieces_of(45, 45)});
  for (int threads = 1; threads <= repetitions(3, 1); threads += 2) {
    backend_ = make_backend(GetParam(), Precision::kBf16, threads);
    for (const std::int64_t chunk : {1, 3, 7, 33}) {
      EXPECT_EQ(run(kSmall, sequences, {pieces_of(45, chunk), pieces_of(45, chunk)}), whole)
          << "chunk " << chunk << ", " << threads << " threads";
    }
  }
}

TEST_P(DeltaNetConformance, CutsAndNeighboursChangeNothing) {
  constexpr std::int64_t kLengths[] = {300, 1, 2, 63, 64, 65};
  std::vector<Inputs> sequences;
  std::vector<Cut> whole;
  for (const std::int64_t length : kLengths) {
    sequences.emplace_back(kPublished, length, static_cast<std::uint64_t>(length));
    whole.push_back({length});
  }
  const auto expected = run(kPublished, sequences, whole);
  for (std::size_t i = 0; i < sequences.size(); ++i) {
    EXPECT_EQ(run(kPublished, {sequences[i]}, {whole[i]})[0], expected[i]) << "alone, of " << kLengths[i];
  }
  for (const std::int64_t piece : {1, 16, 63}) {
    std::vector<Cut> cuts;
    // The second and later ones in other pieces than the first.
    for (const std::int64_t length : kLengths) cuts.push_back(pieces_of(length, cuts.empty() ? piece : piece % 7 + 1));
    EXPECT_EQ(run(kPublished, sequences, cuts), expected) << "pieces of " << piece;
  }
}

TEST_P(DeltaNetConformance, ManySequencesChangeNothing) {
  constexpr Shape kShape = {2, 8, 64, 32, 4};
  constexpr std::int64_t kSequences = 210;  // so many heads that CUDA moves states in bulk
  std::vector<Inputs> sequences;
  for (std::int64_t i = 0; i < kSequences; ++i) sequences.emplace_back(kShape, 3, static_cast<std::uint64_t>(i));
  const auto expected = run(kShape, sequences, std::vector<Cut>(kSequences, {3}));
  EXPECT_EQ(run(kShape, sequences, std::vector<Cut>(kSequences, {1, 1, 1})), expected);
  std::vector<Cut> mixed;
  for (std::int64_t i = 0; i < kSequences; ++i) {
    mixed.push_back(i % 3 == 0 ? Cut{1, 2} : i % 3 == 1 ? Cut{2, 1} : Cut{1, 0, 1, 1});
  }
  EXPECT_EQ(run(kShape, sequences, mixed), expected);
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
  for (const std::int64_t width : {17, 1028}) {
    const std::vector<float> values = random.floats(3 * width, 5.0F);
    for (const std::int64_t cols : {width, std::int64_t{1}}) {
      const std::vector<float> gates = random.floats(3 * cols, 60.0F);
      const TestMatrix gate(*backend_, 3, cols, gates);
      const TestMatrix y(*backend_, 3, width, values);
      VN_EXPECT_OK(backend_->sigmoid_gate({gate.view(), y.view()}));
      const std::vector<float> found = y.read();
      for (std::size_t i = 0; i < values.size(); ++i) {
        const auto at = cols == 1 ? i / static_cast<std::size_t>(width) : i;
        const double expected = values[i] * sigmoid(static_cast<double>(gates[at]));
        EXPECT_NEAR(found[i], expected, 1e-6 * std::fabs(expected) + 1e-30);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, DeltaNetConformance, testing::ValuesIn(all_backends()),
                         [](const auto& parameter) { return parameter.param.name(); });

}  // namespace
}  // namespace vernier::test
