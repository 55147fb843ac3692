// What `verify` and `perplexity` compute of rows of logits: log-probabilities, divergence, means with their error.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace vernier::cli {

/// Log-probabilities (natural) of a row of logits, in double precision.
[[nodiscard]] std::vector<double> log_softmax(std::span<const float> logits);

/// Kullback-Leibler divergence of `found` from `expected`, both log-probabilities, in nats.
[[nodiscard]] double divergence(std::span<const double> expected, std::span<const double> found);

/// The index of the largest value, the first of equals.
[[nodiscard]] std::int32_t likeliest(std::span<const double> log_probs);
[[nodiscard]] std::int32_t likeliest(std::span<const float> logits);

struct Estimate {
  double mean = 0.0;
  double error = 0.0;  ///< standard error of the mean: sqrt(variance / (count - 1)); 0 with fewer than two values
};

[[nodiscard]] Estimate mean_of(std::span<const double> values);
/// Covariance of the means of two series of the same length.
[[nodiscard]] double covariance_of_means(std::span<const double> a, std::span<const double> b);
/// The value below which `share` of the values lie, interpolated between neighbours. 0 when there are none.
[[nodiscard]] double quantile(std::span<const double> values, double share);

}  // namespace vernier::cli
