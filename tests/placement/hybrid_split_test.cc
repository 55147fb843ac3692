#include "placement/hybrid_split.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace vernier {
namespace {

/// Plays steps with given times of the lanes and returns the mean share of the host over the last 100.
double play(HybridSplit& split, double host, double fetch, double hand_over, int steps) {
  double share = 0.0;
  for (int i = 0; i < steps; ++i) {
    constexpr std::int64_t kMissing = 8;
    const std::int64_t on_host = split.host_share(kMissing);
    split.record_host(host * static_cast<double>(on_host), on_host);
    split.record_fetch(fetch);
    const double lanes = std::max(host * static_cast<double>(on_host), fetch * static_cast<double>(kMissing - on_host));
    split.record_step(lanes + (on_host > 0 ? hand_over : 0.0), kMissing);
    if (i >= steps - 100) share += static_cast<double>(on_host) / 100.0;
  }
  return share;
}

TEST(HybridSplit, GivesTheFasterLaneMore) {
  HybridSplit even;
  EXPECT_NEAR(play(even, 1.0, 1.0, 0.0, 1000), 4.0, 0.5);
  HybridSplit fast_host;
  EXPECT_GT(play(fast_host, 1.0, 3.0, 0.0, 1000), 5.0);
  HybridSplit slow_host;
  EXPECT_LT(play(slow_host, 3.0, 1.0, 0.0, 1000), 2.5);
}

TEST(HybridSplit, FallsBackWhenSplittingLosesAndComesBackWhenItPays) {
  HybridSplit split;
  EXPECT_LT(play(split, 1.0, 1.0, 100.0, 2000), 1.0) << "handing over costs more than it saves";
  EXPECT_TRUE(split.fell_back());
  EXPECT_GT(play(split, 1.0, 1.0, 0.0, 1000), 3.0) << "it no longer does";
  EXPECT_FALSE(split.fell_back());
}

TEST(HybridSplit, AnEvenShareAsksNobody) {
  HybridSplit split;
  EXPECT_EQ(split.even_share(8), 4) << "unknown lanes";
  split.record_host(6.0, 2);
  split.record_fetch(1.0);
  EXPECT_EQ(split.even_share(8), 2);
  EXPECT_EQ(split.even_share(0), 0);
  EXPECT_GT(play(split, 1.0, 1.0, 100.0, 2000), -1.0);
  EXPECT_TRUE(split.fell_back());
  EXPECT_GT(split.even_share(8), 0) << "all the same";
}

TEST(HybridSplit, NothingMissingNeedsNoHost) {
  HybridSplit split;
  EXPECT_EQ(split.host_share(0), 0);
  EXPECT_LE(split.host_share(1), 1);
}

}  // namespace
}  // namespace vernier
