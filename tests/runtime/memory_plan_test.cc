#include "placement/memory_plan.h"

#include <gtest/gtest.h>

namespace vernier {
namespace {

TEST(MemoryPlan, AddsUpAndNamesTheLargestContext) {
  const MemoryNeeds needs{
      .weight_bytes = 1000, .kv_bytes_per_token = 10, .state_bytes_per_sequence = 50, .activation_bytes = 100};
  const MemoryInfo memory{.total_bytes = 4000, .available_bytes = 2000};
  const MemoryPlan plan = plan_memory(needs, memory, 80, 1);
  EXPECT_EQ(plan.cache_bytes, 850U);
  EXPECT_EQ(plan.total_bytes, 1950U);
  EXPECT_TRUE(plan.fits);
  EXPECT_EQ(plan.largest_context, 85);
  EXPECT_TRUE(check_fits(plan, needs, memory));

  const MemoryPlan larger = plan_memory(needs, memory, 80, 2);
  EXPECT_FALSE(larger.fits);
  const Status status = check_fits(larger, needs, memory);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kOutOfMemory);
  EXPECT_NE(status.error().hint.find("40 tokens"), std::string::npos) << status.error().hint;
}

TEST(MemoryPlan, HugeNumbersSaturateInsteadOfWrapping) {
  const MemoryNeeds needs{.weight_bytes = 1,
                          .kv_bytes_per_token = ~std::uint64_t{0} / 2,
                          .state_bytes_per_sequence = 0,
                          .activation_bytes = 0};
  const MemoryPlan plan = plan_memory(needs, {.total_bytes = 100, .available_bytes = 100}, 1 << 20, 4);
  EXPECT_FALSE(plan.fits);
  EXPECT_EQ(plan.largest_context, 0);
}

}  // namespace
}  // namespace vernier
