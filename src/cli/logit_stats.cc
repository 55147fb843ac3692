#include "cli/logit_stats.h"

#include <algorithm>
#include <cmath>

namespace vernier::cli {

std::vector<double> log_softmax(std::span<const float> logits) {
  const double largest = static_cast<double>(*std::max_element(logits.begin(), logits.end()));
  double sum = 0.0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit) - largest);
  const double log_sum = largest + std::log(sum);
  std::vector<double> result;
  result.reserve(logits.size());
  for (const float logit : logits) result.push_back(static_cast<double>(logit) - log_sum);
  return result;
}

double divergence(std::span<const double> expected, std::span<const double> found) {
  double sum = 0.0;
  for (std::size_t i = 0; i < expected.size(); ++i) sum += std::exp(expected[i]) * (expected[i] - found[i]);
  // Rounding alone can bring it below zero; a NaN stays one.
  return sum < 0.0 ? 0.0 : sum;
}

std::int32_t likeliest(std::span<const double> log_probs) {
  return static_cast<std::int32_t>(std::max_element(log_probs.begin(), log_probs.end()) - log_probs.begin());
}

std::int32_t likeliest(std::span<const float> logits) {
  return static_cast<std::int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

double covariance_of_means(std::span<const double> a, std::span<const double> b) {
  if (a.size() < 2) return 0.0;
  const auto count = static_cast<double>(a.size());
  const auto mean = [&](std::span<const double> values) {
    double sum = 0.0;
    for (const double value : values) sum += value;
    return sum / count;
  };
  const double mean_a = mean(a);
  const double mean_b = mean(b);
  double sum = 0.0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += (a[i] - mean_a) * (b[i] - mean_b);
  return sum / count / (count - 1.0);
}

Estimate mean_of(std::span<const double> values) {
  if (values.empty()) return {};
  double sum = 0.0;
  for (const double value : values) sum += value;
  return {sum / static_cast<double>(values.size()), std::sqrt(covariance_of_means(values, values))};
}

double quantile(std::span<const double> values, double share) {
  if (values.empty()) return 0.0;
  std::vector<double> sorted(values.begin(), values.end());
  std::sort(sorted.begin(), sorted.end());
  const double place = share * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<std::size_t>(place);
  const std::size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (place - static_cast<double>(below)) * (sorted[above] - sorted[below]);
}

}  // namespace vernier::cli
