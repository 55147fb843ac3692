// How likely a logit is beside the largest of its row, as an integer: sums of integers are the same in every order, so
// a draw doesn't depend on how a device shares a vocabulary among its threads. Same bits on host and device: plain
// IEEE products and sums, no fused ones, no library's exp.
#pragma once

#include <cstdint>

#include "format/host_device.h"

namespace vernier {

/// The odds of a row's largest logit. With it, odds of 2^24 logits add up to 2^63 at most.
inline constexpr double kTopOdds = 0x1.0p39;
/// The most logits that a row may have.
inline constexpr std::int64_t kMostLogits = std::int64_t{1} << 24;
/// Logits this far (times 1 / temperature) below the largest have no odds left: 2^39 e^-28 < 1/2.
inline constexpr double kLeastExponent = -28.0;

namespace odds_detail {

// nvcc would fuse a * b + c; the host's compilers are told not to.
VN_HOST_DEVICE inline double product(double a, double b) {
#if defined(__CUDA_ARCH__)
  return __dmul_rn(a, b);
#else
  return a * b;
#endif
}
VN_HOST_DEVICE inline double sum(double a, double b) {
#if defined(__CUDA_ARCH__)
  return __dadd_rn(a, b);
#else
  return a + b;
#endif
}

/// result = result * x + 1 / k!
VN_HOST_DEVICE inline double next_term(double result, double x, double factorial) {
  return sum(product(result, x), 1.0 / factorial);
}

/// exp(x) for |x| <= ln(2) / 2, by Taylor's series; its error is below 2^-46, far under the half of 2^-39 that rounding
/// costs. Written out, for compilers that don't make vectors of a loop within a loop.
VN_HOST_DEVICE inline double exp_of_fraction(double x) {
  double result = 1.0 / 39916800.0;
  result = next_term(result, x, 3628800.0);
  result = next_term(result, x, 362880.0);
  result = next_term(result, x, 40320.0);
  result = next_term(result, x, 5040.0);
  result = next_term(result, x, 720.0);
  result = next_term(result, x, 120.0);
  result = next_term(result, x, 24.0);
  result = next_term(result, x, 6.0);
  result = next_term(result, x, 2.0);
  result = next_term(result, x, 1.0);
  return next_term(result, x, 1.0);
}

}  // namespace odds_detail

/// round(2^39 exp((logit - largest) / temperature)), 0 for -infinity. `logit` must not be above `largest`.
VN_HOST_DEVICE inline std::uint64_t odds_of(float logit, float largest, double inverse_temperature) {
  using odds_detail::product;
  using odds_detail::sum;
  constexpr double kIntegerBits = 0x1.8p52;  // adding it leaves the nearest integer in the low bits
  constexpr std::uint64_t kIntegerBias = __builtin_bit_cast(std::uint64_t, kIntegerBits);
  double exponent = product(sum(logit, -static_cast<double>(largest)), inverse_temperature);
  exponent = exponent > kLeastExponent ? exponent : kLeastExponent;
  // exp(x) = 2^n exp(ln(2) f) with n + f = x / ln(2), |f| <= 1/2
  const double power = product(exponent, 0x1.71547652b82fep0);
  const double shifted = sum(power, kIntegerBits);
  const double fraction = sum(power, -sum(shifted, -kIntegerBits));
  const double mantissa = odds_detail::exp_of_fraction(product(fraction, 0x1.62e42fefa39efp-1));
  const std::uint64_t whole = __builtin_bit_cast(std::uint64_t, shifted) - kIntegerBias;
  const double scale = __builtin_bit_cast(double, (whole + 1023 + 39) << 52U);
  return __builtin_bit_cast(std::uint64_t, sum(product(mantissa, scale), kIntegerBits)) - kIntegerBias;
}

}  // namespace vernier
