// What memory plans say about activations against what models of every family then take.
#include "model/activations.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "runtime/loaded_model.h"

namespace vernier {
namespace {

std::vector<std::filesystem::path> models() {
  std::vector<std::filesystem::path> list;
  for (const auto& family : std::filesystem::directory_iterator(VERNIER_TEST_DATA "/zoo")) {
    if (!family.is_directory()) continue;
    for (const auto& entry : std::filesystem::directory_iterator(family)) {
      if (entry.is_directory() || entry.path().extension() == ".gguf") list.push_back(entry.path());
    }
  }
  std::sort(list.begin(), list.end());
  return list;
}

TEST(Activations, PlansCountAllThatModelsReserve) {
  ASSERT_GE(models().size(), 8U);
  for (const auto& path : models()) {
    for (const auto& [tokens, sequences] : {std::pair(1, 1), std::pair(16, 3), std::pair(300, 40)}) {
      EngineOptions options;
      options.model = path;
      options.device = "cpu";
      options.context = 64;
      options.threads = 1;
      options.check_weights = false;
      options.batch_tokens = tokens;
      options.max_sequences = sequences;
      const auto loaded = load_model(options);
      ASSERT_TRUE(loaded) << path << ": " << loaded.error().message;
      const auto opened = open_model(path, {}, DType::kBF16);
      ASSERT_TRUE(opened);
      const MemoryNeeds needs = memory_needs(*opened, DType::kBF16, {tokens, sequences});
      const std::uint64_t taken = (*loaded)->info.activation_bytes;
      EXPECT_GT(taken, 0U);
      EXPECT_GE(needs.activation_bytes, taken) << path << ", " << tokens << " tokens";
      // Not far above; what backends keep of experts is planned for, and isn't in `taken`.
      EXPECT_LE(needs.activation_bytes, taken * 4) << path << ", " << tokens << " tokens";
    }
  }
}

TEST(Activations, AStepSuitsTheDeviceUnlessAsked) {
  EngineOptions options;
  options.device = "reference";
  const auto tokens_of_step = [&] {
    const auto loaded = load_model(options);
    return loaded ? (*loaded)->batch_tokens : -1;
  };
  options.context = 8192;
  EXPECT_EQ(tokens_of_step(), 512);
  options.context = 64;  // more than the caches hold would never come together
  EXPECT_EQ(tokens_of_step(), 64);
  options.max_sequences = 3;
  EXPECT_EQ(tokens_of_step(), 192);
  options.batch_tokens = 7;
  EXPECT_EQ(tokens_of_step(), 7);
  // A vocabulary and layers so large that steps shrink.
  ModelConfig config;
  config.num_layers = config.gemma4.per_layer_width = std::int64_t{1} << 40;
  const auto backend = create_backend("reference", {});
  ASSERT_TRUE(backend);
  EXPECT_EQ(choose_batch(**backend, config, 8192, 1), 256);
}

TEST(Activations, PerLayerEmbeddingsAndDeltaNetsCount) {
  const auto bytes = [](ModelConfig config) { return activation_bytes(config, 100, 1); };
  ModelConfig config;
  config.hidden_size = 64;
  config.num_layers = 10;
  config.vocab_size = 1000;
  const std::uint64_t plain = bytes(config);
  config.gemma4.per_layer_width = 32;
  EXPECT_GE(bytes(config), plain + 2 * std::uint64_t{10} * 32 * 100 * sizeof(float));
  config.gemma4.per_layer_width = 0;
  config.delta_net = {.key_heads = 2, .value_heads = 6, .key_head_dim = 32, .value_head_dim = 32, .conv_width = 4};
  const auto channels = static_cast<std::uint64_t>(config.delta_net.channels());
  EXPECT_GE(bytes(config), plain + (channels + 2 * 192 + 12) * 100 * sizeof(float));
}

TEST(Activations, HugeConfigurationsSaturate) {
  ModelConfig config;
  config.num_layers = config.gemma4.per_layer_width = std::int64_t{1} << 40;
  EXPECT_EQ(activation_bytes(config, 256, 1), ~std::uint64_t{0});
}

}  // namespace
}  // namespace vernier
