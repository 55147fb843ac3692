// Means, errors, quantiles and divergences against values worked out by hand.
#include "cli/logit_stats.h"

#include <gtest/gtest.h>

#include <cmath>

namespace vernier::cli {
namespace {

TEST(LogitStats, LogSoftmaxOfLargeLogitsIsFinite) {
  const float logits[] = {1000.0F, 1000.0F, -1000.0F};
  const std::vector<double> found = log_softmax(logits);
  EXPECT_NEAR(found[0], -std::log(2.0), 1e-12);
  EXPECT_NEAR(found[2], -2000.0 - std::log(2.0), 1e-9);
}

TEST(LogitStats, DivergenceHasADirection) {
  const double even[] = {std::log(0.5), std::log(0.5)};
  const double skewed[] = {std::log(0.25), std::log(0.75)};
  EXPECT_NEAR(divergence(even, skewed), 0.5 * std::log(2.0) + 0.5 * std::log(2.0 / 3.0), 1e-12);
  EXPECT_NEAR(divergence(skewed, even), 0.25 * std::log(0.5) + 0.75 * std::log(1.5), 1e-12);
  EXPECT_EQ(divergence(even, even), 0.0);
  const double broken[] = {std::nan(""), 0.0};
  EXPECT_TRUE(std::isnan(divergence(even, broken)));
}

TEST(LogitStats, MeansAndErrors) {
  const double values[] = {1.0, 2.0, 3.0, 6.0};
  const Estimate mean = mean_of(values);
  EXPECT_DOUBLE_EQ(mean.mean, 3.0);
  EXPECT_DOUBLE_EQ(mean.error, std::sqrt(3.5 / 3.0));  // variance 14 / 4
  const double opposite[] = {-1.0, -2.0, -3.0, -6.0};
  EXPECT_DOUBLE_EQ(covariance_of_means(values, opposite), -3.5 / 3.0);
  EXPECT_EQ(mean_of(std::span(values).first(1)).error, 0.0);
  EXPECT_EQ(mean_of({}).mean, 0.0);
}

TEST(LogitStats, QuantilesLieBetweenNeighbours) {
  const double values[] = {4.0, 1.0, 3.0, 2.0};
  EXPECT_DOUBLE_EQ(quantile(values, 0.5), 2.5);
  EXPECT_DOUBLE_EQ(quantile(values, 1.0), 4.0);
  EXPECT_DOUBLE_EQ(quantile(values, 0.0), 1.0);
  EXPECT_DOUBLE_EQ(quantile(values, 0.9), 3.7);
  EXPECT_EQ(quantile({}, 0.5), 0.0);
}

TEST(LogitStats, TheFirstOfEqualsIsLikeliest) {
  const double values[] = {1.0, 2.0, 2.0};
  EXPECT_EQ(likeliest(values), 1);
}

}  // namespace
}  // namespace vernier::cli
