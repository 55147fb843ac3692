// The gated delta net over Lanes: its convolution, and its recurrence with the state of a head in a near cache. See
// kernels.h for the contract and this folder's rules.
#pragma once

#include "backend/cpu/isa/kernels.h"
#include "backend/cpu/isa/math_impl.h"

namespace {

void convolve(const vernier_isa::Convolution& args) {
  for (std::int64_t c = args.begin; c < args.end; c += 16) {
    const std::int64_t count = args.end - c < 16 ? args.end - c : 16;
    float weights[vernier_isa::kMaxConvolution][16] = {};
    for (std::int64_t i = 0; i < count; ++i) {
      for (std::int64_t j = 0; j < args.width; ++j) weights[j][i] = args.weights[(c + i) * args.width + j];
    }
    for (std::int64_t t = 0; t < args.tokens; ++t) {
      Lanes sum = Lanes::load(weights[0]) * Lanes::load_first(args.rows[t] + c, count);
      for (std::int64_t j = 1; j < args.width; ++j) {
        sum = Lanes::fma(Lanes::load(weights[j]), Lanes::load_first(args.rows[t + j] + c, count), sum);
      }
      (sum * sigmoid(sum)).store_first(args.out + t * args.out_stride + c, count);
    }
  }
}

/// kVectors of columns of a head's state, which columns of other vectors never meet. The last vector has `count` of 16
/// columns where kVectors is 1.
template <int kVectors>
struct StateColumns {
  const vernier_isa::DeltaNet& args;
  std::int64_t first;
  std::int64_t count;
  Lanes delta[kVectors];

  [[nodiscard]] Lanes load(const float* row, int v) const {
    return kVectors == 1 ? Lanes::load_first(row + first, count) : Lanes::load(row + first + v * 16);
  }
  void store(Lanes x, float* row, int v) const {
    if (kVectors == 1) {
      x.store_first(row + first, count);
    } else {
      x.store(row + first + v * 16);
    }
  }

  /// S = decay S + k delta^T for the token before t (kUpdate), and S^T k and S^T q of token t (kRead), in one pass.
  template <bool kUpdate, bool kRead>
  void pass(std::int64_t t, Lanes (&predicted)[kVectors], Lanes (&queried)[kVectors]) const {
    const float* k = args.k + t * args.key_dim;
    const float* q = args.q + t * args.key_dim;
    const float* old_k = k - args.key_dim;
    const Lanes decay = Lanes::all(kUpdate ? args.decay[t - 1] : 1.0F);
    for (int v = 0; v < kVectors; ++v) predicted[v] = queried[v] = Lanes::all(0.0F);
    float* row = args.state;
    for (std::int64_t i = 0; i < args.key_dim; ++i, row += args.value_dim) {
      for (int v = 0; v < kVectors; ++v) {
        Lanes state = load(row, v);
        if constexpr (kUpdate) {
          state = Lanes::fma(Lanes::all(old_k[i]), delta[v], state * decay);
          store(state, row, v);
        }
        if constexpr (kRead) {
          predicted[v] = Lanes::fma(state, Lanes::all(k[i]), predicted[v]);
          queried[v] = Lanes::fma(state, Lanes::all(q[i]), queried[v]);
        }
      }
    }
  }

  void run() {
    Lanes predicted[kVectors];
    Lanes queried[kVectors];
    for (std::int64_t t = 0; t < args.tokens; ++t) {
      if (t == 0) {
        pass<false, true>(t, predicted, queried);
      } else {
        pass<true, true>(t, predicted, queried);
      }
      // With S' the decayed state: delta = beta (v - S'^T k), and the new state's S^T q = S'^T q + (k q) delta.
      const Lanes decay = Lanes::all(args.decay[t]);
      const Lanes beta = Lanes::all(args.beta[t]);
      const Lanes key_query = Lanes::all(args.key_query[t]);
      for (int v = 0; v < kVectors; ++v) {
        delta[v] = beta * (load(args.v + t * args.v_stride, v) - decay * predicted[v]);
        store(Lanes::fma(key_query, delta[v], decay * queried[v]), args.out + t * args.value_dim, v);
      }
    }
    pass<true, false>(args.tokens, predicted, queried);
  }
};

void delta_net(const vernier_isa::DeltaNet& args) {
  constexpr int kVectors = 4;
  std::int64_t column = 0;
  for (; column + kVectors * 16 <= args.value_dim; column += kVectors * 16) {
    StateColumns<kVectors>{args, column, 16, {}}.run();
  }
  for (; column < args.value_dim; column += 16) {
    const std::int64_t rest = args.value_dim - column;
    StateColumns<1>{args, column, rest < 16 ? rest : 16, {}}.run();
  }
}

}  // namespace
