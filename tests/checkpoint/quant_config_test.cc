// Quantisation configs in the forms that publishers write them, and module lists.
#include "checkpoint/quant_config.h"

#include <gtest/gtest.h>

#include <chrono>

#include "support/expect_error.h"

namespace vernier::test {
namespace {

Result<QuantConfig> parse(std::string_view quantization, std::string_view hf = "") {
  const std::string config =
      quantization.empty() ? "{}" : "{\"quantization_config\": " + std::string(quantization) + "}";
  VN_ASSIGN(const Json json, parse_json(config));
  Json hf_json;
  if (!hf.empty()) {
    VN_ASSIGN(hf_json, parse_json(hf));
  }
  return QuantConfig::parse(&json, &hf_json);
}

/// The scheme declared for a module, as a word.
std::string about(const QuantConfig& config, std::string_view module) {
  const auto declared = config.about(module);
  return declared ? std::string(scheme_name(declared->scheme)) : "nothing";
}

TEST(QuantConfigTest, NothingDeclared) {
  const auto config = parse("");
  ASSERT_TRUE(config);
  EXPECT_FALSE(config->declared());
  EXPECT_EQ(config->dialect(), "");
  EXPECT_EQ(about(*config, "model.layers.0.mlp.up_proj"), "nothing");
  ASSERT_TRUE(parse("{}"));
  EXPECT_FALSE(parse("{}")->declared());
}

TEST(QuantConfigTest, ModelOptBlackList) {
  const auto config = parse(R"({"quant_method": "modelopt", "quant_algo": "nvfp4", "kv_cache_scheme": "FP8",
    "config_groups": {"group_0": {"weights": {"num_bits": 4, "type": "float", "group_size": 16}, "targets": ["Linear"]}},
    "ignore": ["lm_head", "model.language_model.layers.0.self_attn*", "*.mlp.shared_expert.*", "model.nothing.of.the.kind"]})");
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->dialect(), "modelopt");
  EXPECT_EQ(about(*config, "model.language_model.layers.1.self_attn.q_proj"), "NVFP4");
  EXPECT_EQ(config->about("model.layers.1.mlp.up_proj")->group_size, 16);
  EXPECT_EQ(about(*config, "model.language_model.layers.0.self_attn.q_proj"), "unquantised");
  EXPECT_EQ(about(*config, "language_model.model.layers.0.self_attn.q_proj"), "unquantised");
  EXPECT_EQ(about(*config, "model.layers.3.mlp.shared_expert.up_proj"), "unquantised");
  EXPECT_EQ(about(*config, "lm_head"), "unquantised");
}

TEST(QuantConfigTest, ModelOptInItsOwnFile) {
  const auto config = parse("", R"({"producer": {"name": "modelopt"},
    "quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": null}})");
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->dialect(), "modelopt");
  EXPECT_EQ(config->source(), "hf_quant_config.json");
  EXPECT_EQ(about(*config, "model.layers.1.mlp.up_proj"), "FP8");
}

TEST(QuantConfigTest, ModelOptWithoutMethod) {
  const auto config = parse(R"({"quant_algo": "FP8", "ignore": ["lm_head"], "kv_cache_scheme": "FP8"})");
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->dialect(), "modelopt");
}

TEST(QuantConfigTest, ModelOptWhiteList) {
  const auto config = parse(R"({"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION", "ignore": ["mtp*"],
    "quantized_layers": {"model.layers.0.self_attn.q_proj": {"quant_algo": "FP8"},
                         "model.layers.0.mlp.experts": {"quant_algo": "W4A16_NVFP4", "group_size": 16}}})");
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(about(*config, "model.layers.0.self_attn.q_proj"), "FP8");
  EXPECT_EQ(about(*config, "model.layers.0.self_attn.k_proj"), "unquantised");
  EXPECT_EQ(about(*config, "model.layers.0.mlp.experts.17.up_proj"), "NVFP4");
  EXPECT_EQ(about(*config, "model.layers.0.mlp.experts_too"), "unquantised");
}

TEST(QuantConfigTest, CompressedTensorsMixed) {
  const auto config = parse(R"({"quant_method": "compressed-tensors", "format": "mixed-precision", "config_groups": {
    "group_0": {"format": "float-quantized", "targets": ["re:.*self_attn\\.(q|k|v|o)_proj$", "model.layers.1.mlp.up_proj"],
                "weights": {"num_bits": 8, "type": "float", "strategy": "channel"}},
    "group_1": {"format": "nvfp4-pack-quantized", "targets": ["Linear"],
                "weights": {"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16}},
    "caches": {"targets": ["Attention"], "weights": null}},
    "ignore": ["re:^mtp.*", "model.layers.2.mlp"]})");
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->dialect(), "compressed-tensors");
  EXPECT_EQ(about(*config, "model.language_model.layers.7.self_attn.k_proj"), "FP8");
  EXPECT_EQ(about(*config, "model.layers.1.mlp.up_proj"), "FP8");
  EXPECT_EQ(about(*config, "model.layers.1.mlp.gate_proj"), "NVFP4");
  EXPECT_EQ(about(*config, "mtp.layers.0.mlp.up_proj"), "unquantised");
  // Names are exact: an ignored parent says nothing about what is below it.
  EXPECT_EQ(about(*config, "model.layers.2.mlp.up_proj"), "NVFP4");
  EXPECT_EQ(about(*config, "model.layers.2.mlp"), "unquantised");
}

TEST(QuantConfigTest, HuggingFaceFp8) {
  const auto config = parse(R"({"quant_method": "fp8", "activation_scheme": "dynamic", "weight_per_tensor": false,
    "weight_block_size": [128, 128], "modules_to_not_convert": ["visual.blocks.0", "model.layers.0.mlp.gate"]})");
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->dialect(), "fp8");
  EXPECT_EQ(config->block_rows(), 128);
  EXPECT_EQ(about(*config, "model.layers.0.mlp.gate_proj"), "FP8");
  EXPECT_EQ(about(*config, "model.layers.0.mlp.gate"), "unquantised");
  EXPECT_EQ(about(*config, "model.visual.blocks.0.attn.qkv"), "unquantised");
}

TEST(QuantConfigTest, GptOss) {
  const auto config =
      parse(R"({"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn", "lm_head"]})");
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->dialect(), "gpt-oss");
  EXPECT_EQ(about(*config, "model.layers.3.self_attn.q_proj"), "unquantised");
  EXPECT_EQ(about(*config, "model.layers.3.mlp.experts.gate_up_proj"), "MXFP4");
}

TEST(QuantConfigTest, LooseReadings) {
  const auto config = parse(R"({"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": ["layers.0.self_attn",
    "model.layers.1.linear_attn.out_proj", "model.layers.2.self_attn.qkv_proj", "model.layers.3.mlp.experts.0.gate_proj"]})");
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_TRUE(config->may_mean("model.layers.0.self_attn.q_proj", Scheme::kPlain));
  EXPECT_TRUE(config->may_mean("model.layers.1.linear_attn.in_proj_z", Scheme::kPlain));
  EXPECT_TRUE(config->may_mean("model.layers.2.self_attn.k_proj", Scheme::kPlain));
  EXPECT_TRUE(config->may_mean("model.layers.3.mlp.experts.gate_up_proj", Scheme::kPlain));
  EXPECT_FALSE(config->may_mean("model.layers.4.self_attn.q_proj", Scheme::kPlain));
  EXPECT_FALSE(config->may_mean("model.layers.10.self_attn.q_proj", Scheme::kPlain));
}

TEST(QuantConfigTest, RefusedByName) {
  const struct {
    const char* config;
    std::vector<std::string> words;
  } cases[] = {
      {R"({"quant_method": "bitsandbytes", "load_in_8bit": true})", {"bitsandbytes"}},
      {R"({"quant_method": "awq", "bits": 4})", {"AWQ"}},
      {R"({"quant_method": "gptq", "bits": 4})", {"GPTQ"}},
      {R"({"quant_method": "auto-round"})", {"AutoRound"}},
      {R"({"quant_method": "pearl"})", {"'pearl'", "unknown"}},
      {R"({"group_size": 64, "bits": 4})", {"MLX", "4 bits"}},
      {R"({"quant_method": "fp8", "fmt": "e5m2"})", {"e5m2", "e4m3"}},
      {R"({"quant_method": "modelopt", "quant_algo": "W4A8_AWQ"})", {"W4A8_AWQ"}},
      {R"({"quant_method": "modelopt", "quant_algo": "MXFP8"})", {"MXFP8"}},
      {R"({"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION"})", {"quantized_layers"}},
      {R"({"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION", "quantized_layers": {"a": {"quant_algo": "INT4"}}})",
       {"'a'", "INT4"}},
      {R"({"quant_method": "modelopt"})", {"quant_algo"}},
      {R"({"quant_method": "modelopt", "quant_algo": "FP8", "ignore": "lm_head"})", {"ignore", "string"}},
      {R"({"quant_method": "compressed-tensors", "format": "pack-quantized"})", {"pack-quantized"}},
      {R"({"quant_method": "compressed-tensors", "format": "int-quantized"})", {"int-quantized"}},
      {R"({"quant_method": "compressed-tensors", "config_groups": {"g": {"weights": {"num_bits": 4, "type": "int"}}}})",
       {"config_groups.g", "int"}},
      {R"({"quant_method": "compressed-tensors", "ignore": ["re:(a"]})", {"re:(a", "regular expression"}},
  };
  for (const auto& c : cases) EXPECT_TRUE(fails_with(parse(c.config), c.words)) << c.config;
  const auto mlx = parse_json(R"({"quantization": {"bits": 4, "group_size": 64, "mode": "affine"}})");
  ASSERT_TRUE(mlx);
  EXPECT_TRUE(fails_with(QuantConfig::parse(&*mlx, nullptr), {"MLX"}));
}

TEST(ModuleListTest, Wildcards) {
  EXPECT_TRUE(matches_wildcards("a*c", "abc"));
  EXPECT_TRUE(matches_wildcards("*", ""));
  EXPECT_TRUE(matches_wildcards("a?c", "abc"));
  EXPECT_TRUE(matches_wildcards("*b*", "abc"));
  EXPECT_FALSE(matches_wildcards("a*d", "abc"));
  EXPECT_FALSE(matches_wildcards("", "a"));
}

TEST(ModuleListTest, HostilePatternsAreBounded) {
  const auto begin = std::chrono::steady_clock::now();
  const std::string module = "model." + std::string(200, 'a');
  ModuleList list;
  ASSERT_TRUE(list.add("re:(a+)+$b", ModuleList::Below::kNo));
  ASSERT_TRUE(list.add("re:(a|a)*c", ModuleList::Below::kNo));
  std::string stars;
  for (int i = 0; i < 100; ++i) stars += "a*";
  ASSERT_TRUE(list.add("*" + stars + "b?", ModuleList::Below::kNo));
  EXPECT_FALSE(list.matches(module));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
  EXPECT_FALSE(list.add("re:" + std::string(5000, 'a'), ModuleList::Below::kNo));
  Status status;
  for (int i = 0; i < 2000 && status; ++i) status = list.add("*." + std::to_string(i), ModuleList::Below::kNo);
  EXPECT_TRUE(fails_with(status, {"more than 1024 patterns"}));
}

}  // namespace
}  // namespace vernier::test
