// Costs of steps against figures worked out by hand.
#include "bench/cost.h"

#include <gtest/gtest.h>

namespace vernier::bench {
namespace {

ModelConfig small_config() {
  ModelConfig config;
  config.num_layers = 2;
  config.num_heads = 4;
  config.layers = {LayerKind::kFullAttention, LayerKind::kSlidingAttention};
  config.sliding_window = 8;
  return config;
}

WeightTraffic small_traffic() {
  WeightTraffic traffic;
  traffic.trunk = {1000, 2000};
  traffic.head = {100, 200};
  traffic.embedding_row_bytes = 10;
  return traffic;
}

CacheShapes small_caches() { return {{{2, 16}, {2, 16}}, {}}; }

TEST(CostModel, OneTokenReadsEveryWeightOnceAndItsCache) {
  const CostModel model(small_config(), small_traffic(), small_caches(), DType::kBF16);
  const CostSlice slice{1, 99, true};
  const Cost cost = model.step({&slice, 1});
  EXPECT_EQ(cost.weight_bytes, 1000 + 100 + 10);
  const double position = 2 * 2 * 16 * 2;  // keys and values, heads, dims, bytes
  EXPECT_EQ(cost.cache_bytes, position * (100 + 8));
  EXPECT_EQ(cost.flops, 2 * (2000 + 200) + 4 * 4 * 16 * (100.0 + 8.0));
}

TEST(CostModel, PrefillCountsPairsUnderTheMaskAndTheHeadOnce) {
  const CostModel model(small_config(), small_traffic(), small_caches(), DType::kF32);
  const CostSlice slice{10, 0, true};
  const Cost cost = model.step({&slice, 1});
  EXPECT_EQ(cost.weight_bytes, 1000 + 100 + 100);
  // 1 + ... + 10 pairs, and 1 + ... + 8 + 8 + 8 where the window is 8.
  EXPECT_EQ(cost.flops, 2 * (10 * 2000 + 200) + 4 * 4 * 16 * (55.0 + 52.0));
  const CostSlice silent{10, 0, false};
  EXPECT_EQ(model.step({&silent, 1}).weight_bytes, 1000 + 100);
}

TEST(CostModel, ExpertsCountAsManyAsAreTouched) {
  ModelConfig config = small_config();
  config.num_experts = 4;
  config.experts_per_token = 1;
  WeightTraffic traffic;
  traffic.experts = {4000, 8000};
  const CostModel model(config, traffic, {}, DType::kBF16);
  const CostSlice one{1, 0, false};
  EXPECT_NEAR(model.step({&one, 1}).weight_bytes, 1000, 1e-9);
  EXPECT_EQ(model.step({&one, 1}).flops, 2 * 2000);
  const CostSlice two[] = {one, one};
  EXPECT_NEAR(model.step(two).weight_bytes, 4000 * (1 - 0.75 * 0.75), 1e-9);
  EXPECT_EQ(model.step(two).flops, 4 * 2000);
}

TEST(CostModel, StatesAreReadAndWritten) {
  CacheShapes caches;
  caches.kv = {{0, 0}, {0, 0}};
  caches.state = {{100, 10}, {0, 0}};
  const CostModel model(small_config(), {}, caches, DType::kBF16);
  const CostSlice slice{1, 50, false};
  EXPECT_EQ(model.step({&slice, 1}).cache_bytes, 2 * 4 * 110);
  EXPECT_EQ(model.step({&slice, 1}).flops, 0);
}

TEST(Cost, FloorIsTheLongerOfReadingAndComputing) {
  const Cost cost{2e9, 1e9, 6e9};
  EXPECT_DOUBLE_EQ(cost.floor_seconds({3.0, 100.0}), 1.0);
  EXPECT_DOUBLE_EQ(cost.floor_seconds({300.0, 2.0}), 3.0);
  EXPECT_EQ(cost.floor_seconds({0.0, 2.0}), 0.0);
}

}  // namespace
}  // namespace vernier::bench
