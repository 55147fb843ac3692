// Configurations: what is read from valid ones, and that every row of hostile configurations is refused with the key
// and the value found.
#include <limits>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

#include "model/config_support.h"

namespace vernier {
namespace {

using test::family;
using test::llama_json;
using test::llama_keys;
using test::parse;
using test::qwen3moe_json;
using test::with;

TEST(Config, LlamaFromHf) {
  const auto config = family("llama").config_from_hf(llama_json());
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->num_heads, 6);
  EXPECT_EQ(config->head_dim, 32);
  EXPECT_EQ(config->rope.scaling, RopeConfig::Scaling::kLlama3);
  EXPECT_EQ(config->rope.original_context, 512.0);
  EXPECT_EQ(config->eos_ids, (std::vector<std::int64_t>{1023, 5}));
  EXPECT_EQ(config->head, HeadRule::kOwn);
  EXPECT_FALSE(config->rope.interleaved);
}

TEST(Config, LlamaFromGguf) {
  const auto config = family("llama").config_from_gguf(llama_keys());
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_TRUE(config->rope.interleaved);
  EXPECT_TRUE(config->from_gguf);
  EXPECT_EQ(config->head, HeadRule::kIfStored);
  EXPECT_EQ(config->rope.theta, 500000.0);
}

TEST(Config, RopeKeysAreFoundInBothPlacesAndSpellings) {
  Json old = parse(R"({"type":"linear","factor":4.0})");
  Json json = with(with(llama_json(), "rope_parameters", Json()), "rope_scaling", old);
  const auto config = family("llama").config_from_hf(with(json, "rope_theta", Json(1e6)));
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->rope.scaling, RopeConfig::Scaling::kLinear);
  EXPECT_EQ(config->rope.theta, 1e6);
}

TEST(Config, MistralWindowCoversAllLayers) {
  Json json = with(with(llama_json(), "model_type", Json("mistral")), "sliding_window", Json(64));
  const auto config = family("llama").config_from_hf(json);
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->sliding_window, 64);
  EXPECT_EQ(config->layers, std::vector<LayerKind>(4, LayerKind::kSlidingAttention));
  const auto none = family("llama").config_from_hf(with(json, "sliding_window", Json()));
  ASSERT_TRUE(none);
  EXPECT_EQ(none->sliding_window, 0);
}

TEST(Config, SparseLayersFollowStepAndList) {
  Json json = with(with(qwen3moe_json(), "decoder_sparse_step", Json(2)), "mlp_only_layers", parse("[3]"));
  const auto config = family("qwen3moe").config_from_hf(json);
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->sparse, (std::vector<bool>{false, true, false, false}));
}

TEST(Config, TiedHead) {
  const auto tied = family("llama").config_from_hf(with(llama_json(), "tie_word_embeddings", Json(true)));
  ASSERT_TRUE(tied);
  EXPECT_EQ(tied->head, HeadRule::kTied);
}

struct Row {
  std::string_view name;
  std::string_view family;
  std::string_view key;
  Json value;
  std::string_view message;  // a part of it
};

void PrintTo(const Row& row, std::ostream* out) { *out << row.name; }

class HostileConfig : public testing::TestWithParam<Row> {};

TEST_P(HostileConfig, IsRefusedNamingKeyAndValue) {
  const Row& row = GetParam();
  const bool gguf = row.key.find('.') != std::string_view::npos;
  Json json = gguf ? llama_keys() : (row.family == "llama" ? llama_json() : qwen3moe_json());
  json = with(std::move(json), std::string(row.key), row.value);
  const Architecture& architecture = family(row.family);
  const auto config = gguf ? architecture.config_from_gguf(json) : architecture.config_from_hf(json);
  ASSERT_FALSE(config);
  EXPECT_NE(config.error().message.find(row.message), std::string::npos) << config.error().message;
}

const double kNan = std::numeric_limits<double>::quiet_NaN();
const Json kHuge(std::uint64_t{1} << 63);

INSTANTIATE_TEST_SUITE_P(
    K, HostileConfig,
    testing::Values(
        Row{"K1 heads 0", "llama", "llama.attention.head_count", Json(0),
            "attention.head_count must be in 1..1024, found 0"},
        Row{"K1 kv heads 0", "llama", "llama.attention.head_count_kv", Json(0),
            "attention.head_count_kv must be in 1..1024, found 0"},
        Row{"K1 kv heads", "llama", "num_key_value_heads", Json(4), "6 isn't a multiple of attention.head_count_kv 4"},
        Row{"K1 head_dim 0", "llama", "head_dim", Json(0), "head_dim must be in 1..4096, found 0"},
        Row{"K1 hidden 0", "llama", "hidden_size", Json(0), "hidden_size must be in 1..1048576, found 0"},
        Row{"K1 widths", "llama", "llama.attention.value_length", Json(64),
            "attention.value_length 64 differs from the key length 32"},
        Row{"K2 layers 0", "llama", "llama.block_count", Json(0), "block_count must be in 1..512, found 0"},
        Row{"K2 layers 513", "llama", "num_hidden_layers", Json(513), "num_hidden_layers must be in 1..512, found 513"},
        Row{"K2 layers 2^31", "llama", "num_hidden_layers", Json(std::int64_t{1} << 31), "found 2147483648"},
        Row{"K2 experts used", "qwen3moe", "num_experts_per_tok", Json(9),
            "num_experts_per_tok must be in 1..8, found 9"},
        Row{"K2 experts 0", "qwen3moe", "num_local_experts", Json(0), "num_local_experts must be in 1..4096, found 0"},
        Row{"K3 vocab -1", "llama", "vocab_size", Json(-1), "vocab_size must be in 1..16777216, found -1"},
        Row{"K3 vocab 0", "llama", "llama.vocab_size", Json(0), "vocab_size must be in 1..16777216, found 0"},
        Row{"K3 vocab 2^31", "llama", "vocab_size", Json(std::int64_t{1} << 31), "found 2147483648"},
        Row{"K3 tokens", "llama", "tokenizer.ggml.tokens", Json(1025), "below the tokenizer's 1025 tokens"},
        Row{"K4 context 0", "llama", "max_position_embeddings", Json(0), "max_position_embeddings must be in 1.."},
        Row{"K5 base 0", "llama", "llama.rope.freq_base", Json(0.0), "rope.freq_base must be in 1"},
        Row{"K5 base NaN", "llama", "llama.rope.freq_base", Json(kNan), "found nan"},
        Row{"K5 base -1", "llama", "llama.rope.freq_base", Json(-1.0), "found -1"},
        Row{"K5 factor 0", "llama", "rope_parameters", parse(R"({"rope_type":"yarn","factor":0})"),
            "rope_parameters.factor must be in 1..1000000, found 0"},
        Row{"K5 dims odd", "llama", "llama.rope.dimension_count", Json(31),
            "rope.dimension_count must be even and in 2..32 (the head width), found 31"},
        Row{"K5 dims big", "llama", "llama.rope.dimension_count", Json(34),
            "rope.dimension_count must be in 2..32, found 34"},
        Row{"K5 type", "llama", "rope_parameters", parse(R"({"rope_type":"dynamic","factor":2})"),
            "'dynamic' isn't supported"},
        Row{"K6 eps NaN", "llama", "llama.attention.layer_norm_rms_epsilon", Json(kNan), "found nan"},
        Row{"K6 eps -1", "llama", "rms_norm_eps", Json(-1.0), "rms_norm_eps must be in 0..0.1, found -1"},
        Row{"K6 eps 1e30", "llama", "rms_norm_eps", Json(1e30), "found 1e+30"},
        Row{"K8 short", "llama", "llama.attention.head_count_kv", parse("[2,2,2]"),
            "has 3 entries, expected one for each of 4 layers"},
        Row{"K8 long", "llama", "llama.attention.head_count_kv", parse("[2,2,2,2,2]"), "has 5 entries"},
        Row{"K8 zero", "llama", "llama.attention.head_count_kv", parse("[2,2,0,2]"),
            "attention.head_count_kv[2] must be in 1..1024, found 0"},
        Row{"K8 list", "qwen3moe", "mlp_only_layers", parse("[4]"), "mlp_only_layers[0] must be in 0..3, found 4"},
        Row{"K10 string", "llama", "num_attention_heads", Json("6"),
            "num_attention_heads must be an integer in 1..1024, found the string \"6\""},
        Row{"K10 float", "llama", "hidden_size", Json(1e3), "hidden_size must be an integer in 1..1048576, found 1000"},
        Row{"K10 bool", "llama", "hidden_size", Json(true), "found true"},
        Row{"K10 null", "llama", "hidden_size", Json(), "found null"},
        Row{"K10 big", "llama", "hidden_size", kHuge, "found 9223372036854775808"},
        Row{"K10 array", "llama", "rms_norm_eps", parse("[1]"),
            "rms_norm_eps must be a number in 0..0.1, found an array"},
        Row{"K10 gguf integer", "llama", "llama.rope.freq_base", Json(10000), "rope.freq_base must be a number"},
        Row{"P6 eos", "llama", "eos_token_id", Json(1024), "eos_token_id must be in -1..1023, found 1024"},
        Row{"P6 bos", "llama", "bos_token_id", Json(std::int64_t{0xffffffff}), "bos_token_id must be in -1..1023"}),
    [](const auto& test_info) { return "row" + std::to_string(test_info.index); });

TEST(HostileConfig, WindowsAreChecked) {  // K7
  Json json = with(llama_json(), "model_type", Json("mistral"));
  for (const int window : {0, -1, 32769}) {
    const auto config = family("llama").config_from_hf(with(json, "sliding_window", Json(window)));
    ASSERT_FALSE(config) << window;
    EXPECT_NE(config.error().message.find("sliding_window must be in 1..32768"), std::string::npos);
  }
  const auto pattern = family("llama").config_from_hf(
      with(with(json, "sliding_window", Json(64)), "layer_types", parse(R"(["full_attention"])")));
  ASSERT_FALSE(pattern);
  EXPECT_NE(pattern.error().message.find("layer_types has 1 entries, expected one for each of 4 layers"),
            std::string::npos);
}

TEST(HostileConfig, AHeadWidthMustBeDerivable) {  // K1
  Json json = with(with(llama_json(), "head_dim", Json()), "hidden_size", Json(193));
  const auto config = family("llama").config_from_hf(json);
  ASSERT_FALSE(config);
  EXPECT_EQ(config.error().message,
            "num_attention_heads 6 doesn't divide the hidden size 193 and no head width is given");
}

TEST(HostileConfig, OddValuesThatAreAllowedWarn) {
  const auto zero = family("llama").config_from_hf(with(llama_json(), "rms_norm_eps", Json(0)));  // K6
  ASSERT_TRUE(zero) << zero.error().message;
  EXPECT_EQ(zero->warnings.size(), 1U);
  const auto context =
      family("llama").config_from_hf(with(llama_json(), "max_position_embeddings", Json(std::int64_t{1} << 40)));  // K4
  ASSERT_TRUE(context) << context.error().message;
  EXPECT_EQ(context->context_length, 1 << 30);
  ASSERT_EQ(context->warnings.size(), 1U);
  EXPECT_EQ(context->warnings[0], "max_position_embeddings 1099511627776 is capped at 1073741824");
  const auto none = family("llama").config_from_hf(with(llama_json(), "eos_token_id", Json(-1)));  // P6
  ASSERT_TRUE(none);
  EXPECT_TRUE(none->eos_ids.empty());
}

TEST(HostileConfig, AnythingButAnObjectIsRefused) {
  for (const Architecture& architecture : model_list()) {
    for (const Json& json : {Json(), Json(3), Json("x"), Json(JsonArray{}), Json(JsonObject{})}) {
      EXPECT_FALSE(architecture.config_from_hf(json)) << architecture.name;
      EXPECT_FALSE(architecture.config_from_gguf(json)) << architecture.name;
    }
  }
}

}  // namespace
}  // namespace vernier
