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

TEST(MemoryPlan, SaysWhatWouldFit) {
  constexpr std::uint64_t kMiB = 1 << 20;
  const MemoryInfo memory{.total_bytes = 80 * kMiB, .available_bytes = 70 * kMiB};
  MemoryNeeds needs{.weight_bytes = 100 * kMiB, .activation_bytes = 10 * kMiB, .movable_bytes = 60 * kMiB};
  const auto error = [&] { return check_fits(plan_memory(needs, memory, 100, 1), needs, memory).error(); };
  EXPECT_EQ(error().message,
            "the model needs 110.0 MiB (weights 100.0, caches 0.0, activations 10.0); 70.0 of 80.0 MiB are available");
  EXPECT_EQ(error().hint,
            "--experts hybrid or offload keeps 60.0 MiB of experts in host memory; the rest, 50.0 MiB, fits");
  needs.movable_bytes = 0;
  EXPECT_NE(error().hint.find("not even the weights fit"), std::string::npos);
  needs.movable_bytes = 30 * kMiB;  // too few
  EXPECT_NE(error().hint.find("not even the weights fit"), std::string::npos);
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
