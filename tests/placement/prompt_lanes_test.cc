#include "placement/prompt_lanes.h"

#include <gtest/gtest.h>

namespace vernier {
namespace {

TEST(PromptLanes, FewTokensStayOnTheHostAndManyStream) {
  PromptLanes lanes;
  lanes.record(4, false, 1.0);
  lanes.record(4, true, 0.1);
  for (const std::int64_t rows : {1, 8, 31}) EXPECT_FALSE(lanes.streams(rows));
  lanes.record(2048, true, 1000.0);
  for (const std::int64_t rows : {256, 512, 4096}) EXPECT_TRUE(lanes.streams(rows));
}

TEST(PromptLanes, BetweenThemBothAreTriedAndTheFasterIsKept) {
  for (const bool device_wins : {false, true}) {
    PromptLanes lanes;
    EXPECT_TRUE(lanes.streams(100));
    lanes.record(100, true, device_wins ? 1.0 : 3.0);
    EXPECT_FALSE(lanes.streams(90));
    lanes.record(90, false, 2.0);
    EXPECT_TRUE(lanes.streams(40)) << "another size knows nothing of that";
    int streamed = 0;
    for (int i = 0; i < 512; ++i) streamed += lanes.streams(100) ? 1 : 0;
    EXPECT_EQ(streamed, device_wins ? 510 : 2) << "the slower one gets a turn now and then";
  }
}

TEST(PromptLanes, FollowWhatChanges) {
  PromptLanes lanes;
  lanes.record(64, true, 1.0);
  lanes.record(64, false, 2.0);
  EXPECT_TRUE(lanes.streams(64));
  for (int i = 0; i < 20; ++i) lanes.record(64, true, 4.0);
  EXPECT_FALSE(lanes.streams(64));
}

}  // namespace
}  // namespace vernier
