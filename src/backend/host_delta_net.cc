// The gated delta net and the small pointwise operations as host backends share them: token by token, as the
// definitions read.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "backend/check_args.h"
#include "backend/host_backend.h"

namespace vernier {
namespace {

double sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }
double silu(double x) { return x * sigmoid(x); }
/// log(1 + exp(x)) without overflow.
double softplus(double x) { return x > 0.0 ? x + std::log1p(std::exp(-x)) : std::log1p(std::exp(x)); }

/// The convolution of one token over its channels; the token's inputs then move into the state.
void convolve(const GatedDeltaNetArgs& args, const float* input, float* state, std::vector<double>& out) {
  const std::int64_t channels = args.channels();
  const std::int64_t past = args.conv_width - 1;
  for (std::int64_t c = 0; c < channels; ++c) {
    const float* weight = args.convolution_weight.data() + c * args.conv_width;
    double sum = static_cast<double>(weight[past]) * input[c];
    for (std::int64_t j = 0; j < past; ++j) sum += static_cast<double>(weight[j]) * state[j * channels + c];
    out[static_cast<std::size_t>(c)] = silu(sum);
  }
  std::memmove(state, state + channels, static_cast<std::size_t>((past - 1) * channels) * sizeof(float));
  std::memcpy(state + (past - 1) * channels, input, static_cast<std::size_t>(channels) * sizeof(float));
}

void normalize_l2(double* x, std::int64_t size, double factor) {
  double squares = 1e-6;
  for (std::int64_t i = 0; i < size; ++i) squares += x[i] * x[i];
  const double scale = factor / std::sqrt(squares);
  for (std::int64_t i = 0; i < size; ++i) x[i] *= scale;
}

/// What one token gives to one value head.
struct HeadInput {
  const double* q;
  const double* k;
  const double* v;
  double decay;
  double beta;
};

/// One step of the recurrence; `out` [value_dim] receives S^T q. `state` is [key_dim, value_dim].
void advance(const GatedDeltaNetArgs& args, const HeadInput& in, float* state, std::vector<double>& out) {
  const std::int64_t dim = args.value_dim;
  std::vector<double> delta(static_cast<std::size_t>(dim), 0.0);
  for (std::int64_t i = 0; i < args.key_dim; ++i) {
    const float* row = state + i * dim;
    for (std::int64_t j = 0; j < dim; ++j) delta[static_cast<std::size_t>(j)] += in.decay * row[j] * in.k[i];
  }
  for (std::int64_t j = 0; j < dim; ++j) {
    double& d = delta[static_cast<std::size_t>(j)];
    d = in.beta * (in.v[j] - d);
  }
  std::fill(out.begin(), out.end(), 0.0);
  for (std::int64_t i = 0; i < args.key_dim; ++i) {
    float* row = state + i * dim;
    for (std::int64_t j = 0; j < dim; ++j) {
      row[j] = static_cast<float>(in.decay * row[j] + in.k[i] * delta[static_cast<std::size_t>(j)]);
      out[static_cast<std::size_t>(j)] += static_cast<double>(row[j]) * in.q[i];
    }
  }
}

void write_gated_norm(const GatedDeltaNetArgs& args, const std::vector<double>& out, const float* z, float* y) {
  double squares = 0.0;
  for (const double value : out) squares += value * value;
  const double scale = 1.0 / std::sqrt(squares / args.value_dim + args.eps);
  for (std::size_t j = 0; j < out.size(); ++j) y[j] = static_cast<float>(args.norm[j] * out[j] * scale * silu(z[j]));
}

void clear_states(const GatedDeltaNetArgs& args, std::int64_t slot) {
  const std::int64_t recurrent = args.value_width() * args.key_dim;
  const std::int64_t convolution = (args.conv_width - 1) * args.channels();
  std::fill_n(args.recurrent + slot * recurrent, recurrent, 0.0F);
  std::fill_n(args.convolution + slot * convolution, convolution, 0.0F);
}

void run_token(const GatedDeltaNetArgs& args, std::int64_t row, std::int64_t slot, std::vector<double>& mixed,
               std::vector<double>& out) {
  convolve(args, args.qkv.row(row), args.convolution + slot * (args.conv_width - 1) * args.channels(), mixed);
  double* const q = mixed.data();
  double* const k = q + args.key_width();
  const double* const v = k + args.key_width();
  for (std::int64_t h = 0; h < args.key_heads; ++h) {
    normalize_l2(q + h * args.key_dim, args.key_dim, 1.0 / std::sqrt(static_cast<double>(args.key_dim)));
    normalize_l2(k + h * args.key_dim, args.key_dim, 1.0);
  }
  const std::int64_t state_size = std::int64_t{args.key_dim} * args.value_dim;
  for (std::int64_t h = 0; h < args.value_heads; ++h) {
    const std::int64_t key_head = args.tiled_heads ? h % args.key_heads : h / (args.value_heads / args.key_heads);
    const auto i = static_cast<std::size_t>(h);
    const double rate = static_cast<double>(args.decay_rate[i]) *
                        softplus(static_cast<double>(args.a.row(row)[h]) + static_cast<double>(args.dt_bias[i]));
    const HeadInput in{q + key_head * args.key_dim, k + key_head * args.key_dim, v + h * args.value_dim, std::exp(rate),
                       sigmoid(args.b.row(row)[h])};
    advance(args, in, args.recurrent + (slot * args.value_heads + h) * state_size, out);
    write_gated_norm(args, out, args.z.row(row) + h * args.value_dim, args.y.row(row) + h * args.value_dim);
  }
}

}  // namespace

Status HostBackend::gated_delta_net(const GatedDeltaNetArgs& args) {
  VN_TRY(check_args(args));
  std::vector<double> mixed(static_cast<std::size_t>(args.channels()));
  std::vector<double> out(static_cast<std::size_t>(args.value_dim));
  for (const SequenceSlice& slice : args.slices) {
    if (slice.past == 0 && slice.num_tokens > 0) clear_states(args, slice.state_slot);
    for (std::int64_t t = 0; t < slice.num_tokens; ++t) {
      run_token(args, slice.first_row + t, slice.state_slot, mixed, out);
    }
  }
  return {};
}

Status HostBackend::soft_cap(const SoftCapArgs& args) {
  VN_TRY(check_args(args));
  const auto cap = static_cast<double>(args.cap);
  for (std::int64_t t = 0; t < args.y.rows; ++t) {
    float* y = args.y.row(t);
    for (std::int64_t i = 0; i < args.y.cols; ++i) y[i] = static_cast<float>(cap * std::tanh(y[i] / cap));
  }
  return {};
}

Status HostBackend::sigmoid_gate(const SigmoidGateArgs& args) {
  VN_TRY(check_args(args));
  for (std::int64_t t = 0; t < args.y.rows; ++t) {
    const float* gate = args.gate.row(t);
    float* y = args.y.row(t);
    for (std::int64_t i = 0; i < args.y.cols; ++i) {
      y[i] = static_cast<float>(y[i] * sigmoid(gate[args.gate.cols == 1 ? 0 : i]));
    }
  }
  return {};
}

}  // namespace vernier
