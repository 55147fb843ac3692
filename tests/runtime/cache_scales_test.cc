// Models whose files scale an FP8 KV cache: every layer gets its own scales, the cache then stores other codes, and the
// backends agree on what comes out.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <map>

#include "backend/kv_cell.h"
#include "runtime/loaded_model.h"
#include "support/safetensors_builder.h"
#include "vernier/model.h"

namespace vernier::test {
namespace {

namespace fs = std::filesystem;

const std::vector<std::int32_t> kTokens = {1, 700, 33, 512, 9, 64, 801, 5, 5, 300, 17, 950};

std::string bf16_bytes(float value) {
  std::string bytes;
  append_number(bytes, BF16Codec::encode(value));
  return bytes;
}

/// A copy of a test model with a further shard of scales.
class ScaledModel {
 public:
  explicit ScaledModel(std::string_view name) {
    for (const auto& entry : fs::directory_iterator(fs::path(VERNIER_TEST_DATA "/zoo") / name)) {
      fs::copy_file(entry.path(), folder_ / entry.path().filename().string());
    }
  }
  SafetensorsBuilder scales;
  void save() const { scales.save(folder_ / "scales.safetensors"); }
  [[nodiscard]] const fs::path& path() const { return folder_.path(); }

 private:
  TempFolder folder_;
};

struct CacheRun {
  std::unique_ptr<LoadedModel> loaded;
  std::vector<float> logits;  // of every token

  [[nodiscard]] const KvLayer& layer(std::size_t index) const { return loaded->cache->layers()[index].kv; }
};

Result<CacheRun> run_model(const fs::path& model, const std::string& device, const std::string& kv) {
  EngineOptions options;
  options.model = model;
  options.device = device;
  options.precision = "f32";
  options.kv = kv;
  options.threads = 1;
  options.context = 64;
  options.batch_tokens = 16;
  CacheRun run;
  VN_ASSIGN(run.loaded, load_model(options));
  LoadedModel& loaded = *run.loaded;
  Sequence sequence;
  sequence.tokens = kTokens;
  sequence.pages = {loaded.cache->pages().take()};
  sequence.state_slot = loaded.cache->slots().take();
  const auto count = static_cast<std::int32_t>(kTokens.size());
  VN_TRY(loaded.runner->run({{{&sequence, count, true}}, count, count}, true));
  for (std::int32_t row = 0; row < count; ++row) {
    VN_ASSIGN(const std::span<const float> logits, loaded.runner->logits(row));
    run.logits.insert(run.logits.end(), logits.begin(), logits.end());
  }
  return run;
}

/// The keys or values that a layer stores for kTokens, as bytes of an FP8 cache or floats of an F32 cache.
template <class T>
std::vector<T> stored(const KvLayer& kv, const void* elements) {
  const auto* begin = static_cast<const T*>(elements);  // the first page
  return {begin,
          begin + kTokens.size() * static_cast<std::size_t>(kv.num_kv_heads) * static_cast<std::size_t>(kv.head_dim)};
}

std::vector<std::uint8_t> encoded(const std::vector<float>& values, float scale) {
  std::vector<std::uint8_t> codes;
  for (const float value : values) codes.push_back(E4M3Codec::encode(value / scale));
  return codes;
}

double mean_difference(const std::vector<float>& a, const std::vector<float>& b) {
  double sum = 0.0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i]));
  return sum / static_cast<double>(a.size());
}

/// Scales of a layer, key first.
using LayerScales = std::map<std::size_t, std::pair<float, float>>;

void expect_scales(const CacheRun& run, const LayerScales& expected) {
  for (std::size_t i = 0; i < run.loaded->cache->layers().size(); ++i) {
    const auto found = expected.find(i);
    const std::pair<float, float> wanted = found == expected.end() ? std::pair(1.0F, 1.0F) : found->second;
    EXPECT_EQ(run.layer(i).key_scale, wanted.first) << "layer " << i;
    EXPECT_EQ(run.layer(i).value_scale, wanted.second) << "layer " << i;
  }
  EXPECT_EQ(run.loaded->info.kv_scaled_layers, static_cast<std::int32_t>(expected.size()));
}

/// Runs the model on both host backends with the scales and without; returns the reference's run with them.
CacheRun expect_backends_agree(const ScaledModel& model, const LayerScales& expected) {
  Result<CacheRun> plain = run_model(model.path(), "reference", "fp8");
  model.save();
  Result<CacheRun> reference = run_model(model.path(), "reference", "fp8");
  Result<CacheRun> cpu = run_model(model.path(), "cpu", "fp8");
  for (const Result<CacheRun>* run : {&plain, &reference, &cpu}) {
    if (!*run) {
      ADD_FAILURE() << run->error().message;
      return {};
    }
  }
  EXPECT_EQ(plain->loaded->info.kv_scaled_layers, 0);
  expect_scales(*plain, {});
  expect_scales(*reference, expected);
  expect_scales(*cpu, expected);
  // Scales move what the cache can tell apart; backends differ by the order of sums, which may turn a few codes.
  const double effect = mean_difference(reference->logits, plain->logits);
  EXPECT_GT(effect, 1e-4);
  EXPECT_LT(mean_difference(reference->logits, cpu->logits), effect / 10.0);
  return std::move(*reference);
}

// ModelOpt's spelling in the first layers, compressed-tensors' in the last one.
TEST(CacheScales, LlamaStoresValuesDividedByThem) {
  ScaledModel model("llama/nvfp4");
  model.scales.f32_tensor("model.layers.0.self_attn.k_proj.k_scale", {}, {0.043F});
  model.scales.f32_tensor("model.layers.0.self_attn.v_proj.v_scale", {}, {0.0071F});
  model.scales.f32_tensor("model.layers.1.self_attn.v_proj.v_scale", {1}, {0.03F});
  model.scales.tensor("model.layers.3.self_attn.k_scale", "BF16", {1}, bf16_bytes(0.01171875F));
  const CacheRun scaled =
      expect_backends_agree(model, {{0, {0.043F, 0.0071F}}, {1, {0.03F, 0.03F}}, {3, {0.01171875F, 0.01171875F}}});
  ASSERT_TRUE(scaled.loaded);

  // What the first layer stores depends on no cache: an F32 cache has the exact keys and values, whatever the scales.
  for (const std::string device : {"reference", "cpu"}) {
    const Result<CacheRun> exact = run_model(model.path(), device, "f32");
    const Result<CacheRun> fp8 = run_model(model.path(), device, "fp8");
    ASSERT_TRUE(exact && fp8);
    EXPECT_EQ(exact->loaded->info.kv_scaled_layers, 0);
    const auto keys = stored<float>(exact->layer(0), exact->layer(0).keys);
    const auto values = stored<float>(exact->layer(0), exact->layer(0).values);
    const auto key_codes = stored<std::uint8_t>(fp8->layer(0), fp8->layer(0).keys);
    const auto value_codes = stored<std::uint8_t>(fp8->layer(0), fp8->layer(0).values);
    EXPECT_EQ(key_codes, encoded(keys, 0.043F)) << device;
    EXPECT_EQ(value_codes, encoded(values, 0.0071F)) << device;
    EXPECT_NE(key_codes, encoded(keys, 1.0F)) << device;
    EXPECT_NE(value_codes, encoded(values, 1.0F)) << device;
  }
}

// Layers 3 to 5 read the caches of layers 1 and 2: the scales of those hold for them too, and their own say nothing.
TEST(CacheScales, Gemma4SharesThemWithTheCache) {
  ScaledModel model("gemma4e/nvfp4");
  const std::string prefix = "model.language_model.layers.";
  model.scales.f32_tensor(prefix + "1.self_attn.k_proj.k_scale", {}, {0.37F});
  model.scales.f32_tensor(prefix + "1.self_attn.v_proj.v_scale", {}, {0.0083F});
  model.scales.f32_tensor(prefix + "2.self_attn.k_scale", {1}, {0.011F});
  model.scales.f32_tensor(prefix + "2.self_attn.v_scale", {1}, {0.21F});
  model.scales.f32_tensor(prefix + "4.self_attn.k_scale", {1}, {100.0F});
  (void)expect_backends_agree(model, {{1, {0.37F, 0.0083F}}, {2, {0.011F, 0.21F}}});
}

// Three layers of four have no cache; the draft block has its own, behind those of the layers.
TEST(CacheScales, Qwen35HasThemOnAttentionLayers) {
  ScaledModel model("qwen35/fp8-block");
  const std::string prefix = "model.language_model.layers.";
  model.scales.f32_tensor(prefix + "0.self_attn.k_scale", {1}, {100.0F});
  model.scales.f32_tensor(prefix + "3.self_attn.k_scale", {1}, {0.37F});
  model.scales.f32_tensor(prefix + "3.self_attn.v_scale", {1}, {0.0083F});
  model.scales.f32_tensor("mtp.layers.0.self_attn.k_proj.k_scale", {}, {0.25F});
  const CacheRun run = expect_backends_agree(model, {{3, {0.37F, 0.0083F}}, {4, {0.25F, 0.25F}}});
  ASSERT_TRUE(run.loaded);
  EXPECT_EQ(run.loaded->cache->layers().size(), 5U);
}

TEST(CacheScales, InspectCountsThemByTheCacheAskedFor) {
  ScaledModel model("llama/nvfp4");
  for (int i = 0; i < 4; ++i) {
    model.scales.f32_tensor("model.layers." + std::to_string(i) + ".self_attn.k_proj.k_scale", {}, {0.5F});
  }
  model.save();
  InspectOptions options;
  options.model = model.path();
  const auto unused = inspect(options);
  ASSERT_TRUE(unused);
  EXPECT_EQ(unused->ignored_tensors.at("kv-scale"), 4U);
  EXPECT_EQ(unused->used_cache_scales, 0U);
  options.kv = "fp8";
  const auto used = inspect(options);
  ASSERT_TRUE(used);
  EXPECT_EQ(used->ignored_tensors.count("kv-scale"), 0U);
  EXPECT_EQ(used->used_cache_scales, 4U);
  EXPECT_EQ(used->used_tensors, unused->used_tensors + 4);
  EXPECT_EQ(used->parameters, unused->parameters);
  options.kv = "fp9";
  EXPECT_FALSE(inspect(options));
}

TEST(CacheScales, BadOnesAreRefusedOnlyWhereUsed) {
  ScaledModel model("llama/nvfp4");
  model.scales.f32_tensor("model.layers.2.self_attn.k_proj.k_scale", {}, {0.0F});
  model.save();
  const Result<CacheRun> refused = run_model(model.path(), "cpu", "fp8");
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kCorrupt);
  EXPECT_NE(refused.error().message.find("'model.layers.2.self_attn.k_proj.k_scale' is 0, expected a positive"),
            std::string::npos)
      << refused.error().message;
  EXPECT_TRUE(run_model(model.path(), "cpu", "bf16"));
}

}  // namespace
}  // namespace vernier::test
