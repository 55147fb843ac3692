#include "placement/step_lanes.h"

#include <gtest/gtest.h>

namespace vernier {
namespace {

/// Plays steps of given times and returns how many of the last 100 were shared.
int play(StepLanes& lanes, std::int64_t rows, double alone, double shared, int steps) {
  int count = 0;
  for (int i = 0; i < steps; ++i) {
    const bool shares = lanes.shares(rows);
    lanes.record(shares ? shared : alone);
    if (i >= steps - 100 && shares) ++count;
  }
  return count;
}

TEST(StepLanes, KeepTheFasterWay) {
  StepLanes lanes;
  EXPECT_EQ(play(lanes, 1, 2.0, 1.0, 250), 100);
  EXPECT_EQ(play(lanes, 2, 1.0, 2.0, 250), 0) << "each number of tokens has its own";
  EXPECT_EQ(play(lanes, 1, 1.0, 2.0, 260), 0) << "it has changed";
}

TEST(StepLanes, TryLittle) {
  StepLanes lanes;
  int shared = 0;
  for (int i = 0; i < 8 + 4 * 256; ++i) {
    const bool shares = lanes.shares(4);
    lanes.record(shares ? 1.5 : 1.0);
    shared += shares ? 1 : 0;
  }
  EXPECT_LE(shared, 4 * 4);
}

TEST(StepLanes, OneSlowStepDecidesNothing) {
  StepLanes lanes;
  for (int i = 0; i < 100; ++i) {
    const bool shares = lanes.shares(1);
    lanes.record(i == 8 ? 100.0 : shares ? 2.0 : 1.0);
  }
  EXPECT_FALSE(lanes.shares(1));
}

TEST(StepLanes, FewerMissesWithTimeFavourNone) {
  StepLanes lanes;
  double misses = 100.0;
  for (int i = 0; i < 100; ++i) {
    const bool shares = lanes.shares(1);
    lanes.record((shares ? 1.5 : 1.0) + misses);
    misses *= 0.7;
  }
  EXPECT_FALSE(lanes.shares(1));
}

TEST(StepLanes, ManyTokensAreTheDevices) {
  StepLanes lanes;
  EXPECT_EQ(play(lanes, StepLanes::kMostRows + 1, 2.0, 1.0, 1000), 0);
  EXPECT_EQ(play(lanes, 0, 2.0, 1.0, 1000), 0);
}

}  // namespace
}  // namespace vernier
