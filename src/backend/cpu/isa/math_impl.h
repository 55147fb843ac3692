// Elementwise loops and the exponential over Lanes. See kernels.h for the contract and this folder's rules.
#pragma once

#include "backend/cpu/isa/kernels.h"

namespace {

/// e^x to about one unit in the last place: x = n ln 2 + r with |r| <= ln 2 / 2, a Taylor polynomial in r, times 2^n.
Lanes exponential(Lanes x) {
  constexpr float kLog2E = 1.44269504F;
  constexpr float kLn2High = 0.693359375F;  // 9 bits, so that n * kLn2High is exact
  constexpr float kLn2Low = -2.12194440e-4F;
  constexpr float kRound = 0x1.8p23F;  // adding it leaves no bits for a fraction
  x = Lanes::at_least(Lanes::at_most(x, 90.0F), -105.0F);
  const Lanes biased = Lanes::fma(x, Lanes::all(kLog2E), Lanes::all(kRound));
  const Lanes n = biased - Lanes::all(kRound);
  Lanes r = Lanes::fma(n, Lanes::all(-kLn2High), x);
  r = Lanes::fma(n, Lanes::all(-kLn2Low), r);
  constexpr float kInverseFactorials[] = {1.0F / 720, 1.0F / 120, 1.0F / 24, 1.0F / 6, 0.5F, 1.0F, 1.0F};
  Lanes p = Lanes::all(1.0F / 5040);
  for (const float coefficient : kInverseFactorials) p = Lanes::fma(p, r, Lanes::all(coefficient));
  return Lanes::times_power_of_two(p, biased);
}

/// tanh(x): an odd polynomial near zero, where the quotient beyond would lose digits.
Lanes hyperbolic_tangent(Lanes x) {
  constexpr float kNear = 0.625F;
  constexpr float kPolynomial[] = {0.0208913423F, -0.0538281351F, 0.133326188F, -0.333333284F};
  const Lanes square = x * x;
  Lanes p = Lanes::all(-5.94648905e-3F);
  for (const float coefficient : kPolynomial) p = Lanes::fma(p, square, Lanes::all(coefficient));
  const Lanes near = Lanes::fma(p * square, x, x);
  const Lanes one = Lanes::all(1.0F);
  const Lanes decayed = exponential(Lanes::all(-2.0F) * Lanes::magnitude(x));
  const Lanes far = (one - decayed) / (one + decayed);
  const Lanes signed_far = Lanes::select_less(x, 0.0F, Lanes::all(0.0F) - far, far);
  return Lanes::select_less(Lanes::magnitude(x), kNear, near, signed_far);
}

Lanes sigmoid(Lanes x) {
  const Lanes one = Lanes::all(1.0F);
  return one / (one + exponential(Lanes::all(0.0F) - x));
}

Lanes activate(const vernier_isa::Gate& gate, Lanes g, Lanes up) {
  switch (gate.kind) {
    case vernier_isa::GateKind::kSilu: return g * sigmoid(g) * up;
    case vernier_isa::GateKind::kGeluTanh: {
      // 0.5 (1 + tanh(z)) = sigmoid(2z), with z = sqrt(2 / pi) (g + 0.044715 g^3)
      const Lanes cubic = Lanes::fma(Lanes::all(0.044715F) * g * g, g, g);
      return g * sigmoid(Lanes::all(1.59576912F) * cubic) * up;
    }
    case vernier_isa::GateKind::kClampedSwiglu: {
      const Lanes limited = Lanes::at_most(g, gate.limit);
      const Lanes u = Lanes::at_least(Lanes::at_most(up, gate.limit), -gate.limit);
      return limited * sigmoid(Lanes::all(gate.alpha) * limited) * (u + Lanes::all(1.0F));
    }
  }
  return g;
}

/// Calls function(i, count) for each run of up to 16 of n values.
template <class Function>
void for_each_16(std::int64_t n, Function function) {
  std::int64_t i = 0;
  for (; i + 16 <= n; i += 16) function(i, std::int64_t{16});
  if (i < n) function(i, n - i);
}

void activate_all(const vernier_isa::Gate& gate, const float* g, const float* up, std::int64_t n, float* y) {
  for_each_16(n, [&](std::int64_t i, std::int64_t count) {
    activate(gate, Lanes::load_first(g + i, count), Lanes::load_first(up + i, count)).store_first(y + i, count);
  });
}

void round_to_bf16(const float* x, std::int64_t n, float* y) {
  for_each_16(n, [&](std::int64_t i, std::int64_t count) {
    Lanes::round_to_bf16(Lanes::load_first(x + i, count)).store_first(y + i, count);
  });
}

float sum_of_squares(const float* x, std::int64_t n) {
  Lanes sum = Lanes::all(0.0F);
  for_each_16(n, [&](std::int64_t i, std::int64_t count) {
    const Lanes values = Lanes::load_first(x + i, count);
    sum = Lanes::fma(values, values, sum);
  });
  return sum.sum();
}

void scale(const float* x, float factor, const float* weight, std::int64_t n, float* y) {
  for_each_16(n, [&](std::int64_t i, std::int64_t count) {
    Lanes values = Lanes::load_first(x + i, count) * Lanes::all(factor);
    if (weight != nullptr) values = values * Lanes::load_first(weight + i, count);
    values.store_first(y + i, count);
  });
}

float dot(const float* a, const float* b, std::int64_t n) {
  Lanes sum = Lanes::all(0.0F);
  for_each_16(n, [&](std::int64_t i, std::int64_t count) {
    sum = Lanes::fma(Lanes::load_first(a + i, count), Lanes::load_first(b + i, count), sum);
  });
  return sum.sum();
}

void add(const float* x, std::int64_t n, float* y) {
  for_each_16(n, [&](std::int64_t i, std::int64_t count) {
    (Lanes::load_first(y + i, count) + Lanes::load_first(x + i, count)).store_first(y + i, count);
  });
}

void soft_cap(float cap, std::int64_t n, float* y) {
  const Lanes limit = Lanes::all(cap);
  for_each_16(n, [&](std::int64_t i, std::int64_t count) {
    (hyperbolic_tangent(Lanes::load_first(y + i, count) / limit) * limit).store_first(y + i, count);
  });
}

void gate_by_sigmoid(const float* gate, std::int64_t n, float* y) {
  for_each_16(n, [&](std::int64_t i, std::int64_t count) {
    (Lanes::load_first(y + i, count) * sigmoid(Lanes::load_first(gate + i, count))).store_first(y + i, count);
  });
}

void blend(const float* x, float factor, float keep, std::int64_t n, float* y) {
  for_each_16(n, [&](std::int64_t i, std::int64_t count) {
    const Lanes kept = Lanes::load_first(y + i, count) * Lanes::all(keep);
    Lanes::fma(Lanes::load_first(x + i, count), Lanes::all(factor), kept).store_first(y + i, count);
  });
}

}  // namespace
