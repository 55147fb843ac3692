#include "text/stop_matcher.h"

#include <gtest/gtest.h>

namespace vernier {
namespace {

TEST(StopMatcher, HoldsBackWhatMayBecomeAStopString) {
  StopMatcher matcher({"</end>"});
  EXPECT_EQ(matcher.push("text <").text, "text ");
  EXPECT_EQ(matcher.push("/en").text, "");
  EXPECT_EQ(matcher.push("tity>").text, "</entity>");
  const StopMatcher::Output hit = [&] {
    EXPECT_EQ(matcher.push("more</e").text, "more");
    return matcher.push("nd>never seen");
  }();
  EXPECT_EQ(hit.text, "");
  EXPECT_EQ(hit.stop, 0U);
}

TEST(StopMatcher, FirstCompleteWinsAndOfThoseTheOneThatBeginsFirst) {
  StopMatcher matcher({"bc", "abc", "abcd"});
  const StopMatcher::Output hit = matcher.push("xxabcd");
  EXPECT_EQ(hit.text, "xx");
  EXPECT_EQ(hit.stop, 1U);
}

TEST(StopMatcher, CanIncludeTheStopString) {
  StopMatcher matcher({"\n\n"}, true);
  EXPECT_EQ(matcher.push("a\n").text, "a");
  const StopMatcher::Output hit = matcher.push("\nb");
  EXPECT_EQ(hit.text, "\n\n");
  EXPECT_EQ(hit.stop, 0U);
}

TEST(StopMatcher, OverlappingPrefixesAreFound) {
  StopMatcher matcher({"aab"});
  std::string text;
  for (const char c : std::string("aaaac")) text += matcher.push(std::string(1, c)).text;
  EXPECT_EQ(text, "aaaac");
  EXPECT_EQ(matcher.push("aa").text, "");
  const StopMatcher::Output hit = matcher.push("ab");
  EXPECT_EQ(hit.text, "a");
  EXPECT_TRUE(hit.stop);
}

TEST(StopMatcher, TheRestComesAtTheEnd) {
  StopMatcher matcher({"stop", ""});
  EXPECT_EQ(matcher.push("the st").text, "the ");
  EXPECT_EQ(matcher.finish(), "st");
  EXPECT_EQ(matcher.push("op").text, "op");
}

TEST(StopMatcher, WithoutStopStringsEverythingPasses) {
  StopMatcher matcher({});
  EXPECT_EQ(matcher.push("abc").text, "abc");
  EXPECT_EQ(matcher.finish(), "");
}

}  // namespace
}  // namespace vernier
