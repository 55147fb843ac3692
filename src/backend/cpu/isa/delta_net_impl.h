// The gated delta net over Lanes: its convolution, and its recurrence with the state of a head in a near cache. See
// kernels.h for the contract and this folder's rules.
#pragma once

#include "backend/cpu/isa/kernels.h"
#include "backend/cpu/isa/math_impl.h"

namespace {

void convolve(const vernier_isa::Convolution& args) {
  for (std::int64_t c = args.begin; c < args.end; c += 16) {
    const std::int64_t count = args.end - c < 16 ? args.end - c : 16;
    Lanes weights[16];  // a channel each, then a place of the window each
    for (std::int64_t i = 0; i < 16; ++i) {
      weights[i] = Lanes::load_first(args.weights + (c + (i < count ? i : 0)) * args.width, args.width);
    }
    Lanes::transpose(weights);
    for (std::int64_t t = 0; t < args.tokens; ++t) {
      Lanes sum = weights[0] * Lanes::load_first(args.rows[t] + c, count);
      for (std::int64_t j = 1; j < args.width; ++j) {
        sum = Lanes::fma(weights[j], Lanes::load_first(args.rows[t + j] + c, count), sum);
      }
      __builtin_prefetch(args.rows[t + args.width - 1] + c + 16);  // rows lie far apart
      (sum * sigmoid(sum)).store_first(args.out + t * args.out_stride + c, count);
    }
  }
}

/// kVectors of columns of a head's state, from column `first` on; they never meet other columns. The vector has `count`
/// columns where kVectors is 1, else 16. Row i of the state begins at state + i * stride.
template <int kVectors>
struct StateColumns {
  const vernier_isa::DeltaNet& args;
  std::int64_t first;
  std::int64_t count;
  float* state;
  std::int64_t stride;
  Lanes delta[kVectors];

  [[nodiscard]] Lanes load(const float* row, int v) const {
    return kVectors == 1 ? Lanes::load_first(row, count) : Lanes::load(row + v * 16);
  }
  void store(Lanes x, float* row, int v) const {
    if (kVectors == 1) {
      x.store_first(row, count);
    } else {
      x.store(row + v * 16);
    }
  }

  /// Moves the columns to or from the room that they have to themselves.
  void copy(const float* from, std::int64_t from_stride, float* to, std::int64_t to_stride) const {
    for (std::int64_t i = 0; i < args.key_dim; ++i) {
      for (int v = 0; v < kVectors; ++v) store(load(from + i * from_stride, v), to + i * to_stride, v);
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
    float* row = state;
    for (std::int64_t i = 0; i < args.key_dim; ++i, row += stride) {
      for (int v = 0; v < kVectors; ++v) {
        Lanes element = load(row, v);
        if constexpr (kUpdate) {
          element = Lanes::fma(Lanes::all(old_k[i]), delta[v], element * decay);
          store(element, row, v);
        }
        if constexpr (kRead) {
          predicted[v] = Lanes::fma(element, Lanes::all(k[i]), predicted[v]);
          queried[v] = Lanes::fma(element, Lanes::all(q[i]), queried[v]);
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
        delta[v] = beta * (load(args.v + t * args.v_stride + first, v) - decay * predicted[v]);
        store(Lanes::fma(key_query, delta[v], decay * queried[v]), args.out + t * args.value_dim + first, v);
      }
    }
    pass<true, false>(args.tokens, predicted, queried);
  }
};

/// Tokens from which on columns are worth a copy: rows of the state lie so far apart that few fit a cache's sets.
constexpr std::int64_t kCopyTokens = 4;

template <int kVectors>
void run_columns(const vernier_isa::DeltaNet& args, std::int64_t first, std::int64_t count) {
  float* columns = args.state + first;
  if (args.tokens < kCopyTokens) {
    StateColumns<kVectors>{args, first, count, columns, args.value_dim, {}}.run();
    return;
  }
  constexpr std::int64_t kStride = kVectors * 16;
  StateColumns<kVectors> copied{args, first, count, args.room, kStride, {}};
  copied.copy(columns, args.value_dim, args.room, kStride);
  copied.run();
  copied.copy(args.room, kStride, columns, args.value_dim);
}

void delta_net(const vernier_isa::DeltaNet& args) {
  constexpr int kVectors = Lanes::kAttentionVectors;
  std::int64_t column = 0;
  for (; column + kVectors * 16 <= args.value_dim; column += kVectors * 16) run_columns<kVectors>(args, column, 16);
  for (; column < args.value_dim; column += 16) {
    const std::int64_t rest = args.value_dim - column;
    run_columns<1>(args, column, rest < 16 ? rest : 16);
  }
}

}  // namespace
