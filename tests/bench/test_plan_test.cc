#include "bench/test_plan.h"

#include <gtest/gtest.h>

#include "bench/spread.h"

namespace vernier::bench {
namespace {

TEST(TestPlan, ReadsPromptsGenerationMixesAndSequences) {
  const auto tests = parse_tests("pp512,tg128,tg64x16,pp512+tg128,pp16x4,pp8+tg2x3");
  ASSERT_TRUE(tests.has_value());
  ASSERT_EQ(tests->size(), 6U);
  const auto is = [&](std::size_t i, std::int32_t prompt, std::int32_t generated, std::int32_t sequences) {
    const bench::Test& test = (*tests)[i];
    return test.prompt == prompt && test.generated == generated && test.sequences == sequences;
  };
  EXPECT_TRUE(is(0, 512, 0, 1));
  EXPECT_TRUE(is(1, 0, 128, 1));
  EXPECT_TRUE(is(2, 0, 64, 16));
  EXPECT_TRUE(is(3, 512, 128, 1));
  EXPECT_TRUE(is(4, 16, 0, 4));
  EXPECT_TRUE(is(5, 8, 2, 3));
  EXPECT_EQ((*tests)[5].tokens(), 30);
}

TEST(TestPlan, NamesAreWhatWasRead) {
  for (const char* name : {"pp512", "tg64x16", "pp512+tg128", "pp8+tg2x3"}) {
    EXPECT_EQ(parse_tests(name)->front().name(), name);
  }
}

TEST(TestPlan, RefusesWhatIsNoTest) {
  for (const char* text : {"",        "pp",      "512",         "pp0",  "pp-1",  "pp512,",   ",pp1",    "tg1+pp1",
                           "pp1+pp1", "tg1+tg1", "pp1+tg1+tg1", "tg1x", "tg1x0", "tg1x1025", "tg1x2x3", "pp99999999999",
                           "pp1 ",    " pp1",    "PP1",         "xx1"}) {
    const auto tests = parse_tests(text);
    ASSERT_FALSE(tests.has_value()) << text;
    EXPECT_EQ(tests.error().code, ErrorCode::kInvalidArgument);
    EXPECT_FALSE(tests.error().hint.empty());
  }
}

TEST(TestPlan, ReadsDepths) {
  EXPECT_EQ(*parse_depths("0,512,32768"), (std::vector<std::int32_t>{0, 512, 32768}));
  for (const char* text : {"", "-1", "1,", "x", "1.5", "99999999"}) EXPECT_FALSE(parse_depths(text)) << text;
}

TEST(TestPlan, RefusesLongLists) {
  std::string tests = "pp1";
  std::string depths = "1";
  for (int i = 0; i < 64; ++i) {
    tests += ",pp1";
    depths += ",1";
  }
  EXPECT_FALSE(parse_tests(tests));
  EXPECT_FALSE(parse_depths(depths));
}

TEST(Spread, IsMedianLeastAndGreatest) {
  const Spread odd = spread_of({3.0, 1.0, 2.0});
  EXPECT_EQ(odd.median, 2.0);
  EXPECT_EQ(odd.min, 1.0);
  EXPECT_EQ(odd.max, 3.0);
  EXPECT_EQ(spread_of({4.0, 1.0}).median, 2.5);
  EXPECT_EQ(spread_of({}).median, 0.0);
}

}  // namespace
}  // namespace vernier::bench
