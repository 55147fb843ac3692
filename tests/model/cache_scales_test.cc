// Which tensors scale which layer's FP8 cache.
#include "model/cache_scales.h"

#include <algorithm>

#include "model/config_support.h"

namespace vernier {
namespace {

TEST(CacheScales, OneServesForBothAndNoneIsOne) {
  ModelConfig config;
  config.num_layers = 4;
  WeightSet weights;
  weights.vectors["layers.0.k_scale"] = {0.25F};
  weights.vectors["layers.0.v_scale"] = {0.5F};
  weights.vectors["layers.1.k_scale"] = {0.125F};
  weights.vectors["layers.2.v_scale"] = {2.0F};
  weights.vectors["mtp.v_scale"] = {3.0F};
  const std::vector<KvScales> scales = cache_scales(weights, config, 5);
  ASSERT_EQ(scales.size(), 5U);
  const std::vector<std::pair<float, float>> expected = {
      {0.25F, 0.5F}, {0.125F, 0.125F}, {2.0F, 2.0F}, {1.0F, 1.0F}, {3.0F, 3.0F}};
  for (std::size_t i = 0; i < scales.size(); ++i) {
    EXPECT_EQ(scales[i].key, expected[i].first) << i;
    EXPECT_EQ(scales[i].value, expected[i].second) << i;
    EXPECT_EQ(scales[i].is_stored, i != 3) << i;
  }
  EXPECT_EQ(cache_scales(weights, config, 4).size(), 4U);
}

TEST(CacheScales, EveryFamilyKnowsTheSpellingsInSafetensors) {
  const ModelConfig config = *test::family("llama").config_from_hf(test::llama_json());
  const std::vector<TensorSpec> specs = test::family("llama").tensors(config);
  const auto key =
      std::find_if(specs.begin(), specs.end(), [](const auto& spec) { return spec.role == "layers.2.k_scale"; });
  ASSERT_NE(key, specs.end());
  EXPECT_EQ(key->kind, TensorKind::kCacheScale);
  EXPECT_FALSE(key->required);
  std::vector<std::string> names;
  for (const Spelling& spelling : key->spellings) names.push_back(spelling.name);
  EXPECT_EQ(names, (std::vector<std::string>{"layers.2.self_attn.k_proj.k_scale", "layers.2.self_attn.k_scale",
                                             "layers.2.self_attn.kv_scale"}));

  const ModelConfig gguf = *test::family("llama").config_from_gguf(test::llama_keys());
  for (const TensorSpec& spec : test::family("llama").tensors(gguf)) EXPECT_NE(spec.kind, TensorKind::kCacheScale);
}

}  // namespace
}  // namespace vernier
