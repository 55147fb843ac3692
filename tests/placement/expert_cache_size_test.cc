#include <gtest/gtest.h>

#include "placement/experts.h"

namespace vernier {
namespace {

TEST(ExpertCacheSize, CountsSharesAndSizes) {
  const auto slots = [](std::string_view text) { return parse_expert_cache(text, 256, 1 << 20).value_or(-1); };
  EXPECT_EQ(slots(""), 0);
  EXPECT_EQ(slots("64"), 64);
  EXPECT_EQ(slots("25%"), 64);
  EXPECT_EQ(slots("100%"), 256);
  EXPECT_EQ(slots("2MiB"), 2);
  EXPECT_EQ(slots("1g"), 1024);
  EXPECT_EQ(slots("3GB"), 3072);
  EXPECT_EQ(slots("5B"), 1);
  EXPECT_EQ(slots("18446744073709551615"), 1 << 30);
}

TEST(ExpertStoreChoice, FollowsArithmeticUnlessAsked) {
  constexpr std::uint64_t kGiB = std::uint64_t{1} << 30U;
  EXPECT_EQ(choose_expert_store("auto", 56 * kGiB, 64 * kGiB).value(), "memory");
  EXPECT_EQ(choose_expert_store("auto", 56 * kGiB + 1, 64 * kGiB).value(), "file");
  EXPECT_EQ(choose_expert_store("auto", ~std::uint64_t{0}, 64 * kGiB).value(), "file");
  EXPECT_EQ(choose_expert_store("memory", 100 * kGiB, kGiB).value(), "memory");
  EXPECT_EQ(choose_expert_store("file", 1, kGiB).value(), "file");
  const auto unknown = choose_expert_store("disk", 1, kGiB);
  ASSERT_FALSE(unknown);
  EXPECT_NE(unknown.error().message.find("auto, memory, file"), std::string::npos);
}

TEST(LockableBytes, LeaveAnEighthAndKeepLimits) {
  constexpr std::uint64_t kGiB = std::uint64_t{1} << 30U;
  EXPECT_EQ(lockable_bytes(64 * kGiB, 0, std::nullopt), 56 * kGiB);
  EXPECT_EQ(lockable_bytes(24 * kGiB, 40 * kGiB, std::nullopt), 56 * kGiB) << "what the process has need not come";
  EXPECT_EQ(lockable_bytes(64 * kGiB, 0, 8 * kGiB), 7 * kGiB);
  EXPECT_EQ(lockable_bytes(8 * kGiB, 0, 64 * kGiB), 7 * kGiB);
}

TEST(ExpertCacheSize, RefusesWhatMeansNothing) {
  for (const char* text :
       {"0", "-1", "101%", "x", "1.5G", "2 GiB", "7Q", "5MiBs", "%", "99999999999999999999", "17179869184G", "5%5"}) {
    const auto slots = parse_expert_cache(text, 256, 1 << 20);
    ASSERT_FALSE(slots) << text;
    EXPECT_EQ(slots.error().code, ErrorCode::kInvalidArgument) << text;
  }
}

}  // namespace
}  // namespace vernier
