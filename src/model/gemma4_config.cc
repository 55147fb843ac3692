// gemma4: configuration, from config.json and from GGUF keys.
#include <algorithm>

#include "model/common_config.h"
#include "model/gemma4.h"

namespace vernier::gemma4 {
namespace {

constexpr double kSlidingTheta = 1e4;
constexpr double kFullTheta = 1e6;
constexpr NumberRange kCapRange{0.1, 1e6};

Result<ModelConfig> finish(ConfigReader& reader, ModelConfig config) {
  Gemma4Config& own = config.gemma4;
  config.sparse.assign(static_cast<std::size_t>(config.num_layers), false);  // the dense MLP is always there
  if (config.num_heads % own.full_kv_heads != 0) {
    reader.refuse(ErrorCode::kCorrupt, "attention.head_count {} isn't a multiple of the full layers' {} KV heads",
                  config.num_heads, own.full_kv_heads);
  }
  // A shared layer reads the last owner of its kind, so there must be one of each kind.
  const auto owners_end = config.layers.begin() + (config.num_layers - own.shared_kv_layers);
  for (std::int64_t i = config.num_layers - own.shared_kv_layers; i < config.num_layers; ++i) {
    if (std::find(config.layers.begin(), owners_end, config.layers[static_cast<std::size_t>(i)]) != owners_end)
      continue;
    reader.refuse(ErrorCode::kCorrupt, "layer {} shares keys and values, but no layer of its kind owns any", i);
  }
  return finish_config(reader, std::move(config));
}

// --- config.json -----------------------------------------------------------------------------------------------------

void read_hf_layers(ConfigReader& text, ModelConfig& config) {
  config.layers = read_hf_layer_types(text, config.num_layers);
  for (std::int64_t i = 0; config.layers.size() < static_cast<std::size_t>(config.num_layers); ++i) {
    config.layers.push_back(i % 6 == 5 ? LayerKind::kFullAttention : LayerKind::kSlidingAttention);
  }
  config.layers.back() = LayerKind::kFullAttention;  // the reference implementation forces it too
  if (std::find(config.layers.begin(), config.layers.end(), LayerKind::kLinearAttention) != config.layers.end()) {
    text.refuse(ErrorCode::kUnsupported, "layer_types names linear_attention, which gemma4 doesn't have");
  }
  config.sliding_window = text.nullable_integer("sliding_window", {1, config.context_length}).value_or(512);
}

void read_hf_rope_of_kinds(ConfigReader& text, ModelConfig& config) {
  ConfigReader rope = text.section("rope_parameters");
  const auto context = static_cast<double>(config.context_length);
  ConfigReader sliding = rope.section("sliding_attention");
  read_hf_rope_keys(sliding, kSlidingTheta, context, config.rope);
  config.rope.rotary_dims = config.head_dim;
  RopeConfig& full = config.gemma4.full_rope;
  ConfigReader keys = rope.section("full_attention");
  read_hf_rope_keys(keys, kFullTheta, context, full);
  if (!rope.has("full_attention")) full.scaling = RopeConfig::Scaling::kProportional;
  const double part =
      keys.nullable_number("partial_rotary_factor", {0.0, 1.0}).value_or(rope.has("full_attention") ? 1.0 : 0.25);
  full.rotary_dims = static_cast<std::int64_t>(part * static_cast<double>(config.gemma4.full_head_dim)) / 2 * 2;
}

// --- GGUF ------------------------------------------------------------------------------------------------------------

void read_gguf_layers(ConfigReader& reader, ModelConfig& config) {
  const std::vector<bool> sliding = reader.flags("attention.sliding_window_pattern");
  if (static_cast<std::int64_t>(sliding.size()) != config.num_layers) {
    reader.refuse(ErrorCode::kCorrupt, "{} has {} entries, expected one for each of {} layers",
                  reader.name_of("attention.sliding_window_pattern"), sliding.size(), config.num_layers);
  }
  for (std::size_t i = 0; i < static_cast<std::size_t>(config.num_layers); ++i) {
    const bool slides = i < sliding.size() && sliding[i];
    config.layers.push_back(slides ? LayerKind::kSlidingAttention : LayerKind::kFullAttention);
  }
  config.sliding_window = reader.integer("attention.sliding_window", {1, config.context_length});
}

/// A value that layers of one kind must agree on.
void settle(ConfigReader& reader, std::string_view key, std::size_t layer, std::int64_t found, std::int64_t& value) {
  if (value == 0) value = found;
  if (value == found) return;
  reader.refuse(ErrorCode::kCorrupt, "{}[{}] is {}, expected {} as in other layers of its kind", reader.name_of(key),
                layer, found, value);
}

void read_gguf_layer_arrays(ConfigReader& reader, ModelConfig& config) {
  Gemma4Config& own = config.gemma4;
  const auto heads = read_gguf_per_layer(reader, "attention.head_count_kv", config.num_layers, kHeadRange);
  for (std::size_t i = 0; i < heads.size(); ++i) {
    const bool full = config.layers[i] == LayerKind::kFullAttention;
    settle(reader, "attention.head_count_kv", i, heads[i], full ? own.full_kv_heads : config.num_kv_heads);
  }
  if (config.num_kv_heads == 0) config.num_kv_heads = std::max<std::int64_t>(own.full_kv_heads, 1);
  if (own.full_kv_heads == 0) own.full_kv_heads = config.num_kv_heads;

  const auto widths = read_gguf_per_layer(reader, "feed_forward_length", config.num_layers, kWidthRange);
  if (widths.empty()) return;  // finish_config() reports it
  config.intermediate_size = widths.front();
  own.wide_shared_mlp = own.shared_kv_layers > 0 && widths.back() == 2 * widths.front();
  for (std::size_t i = 0; i < widths.size(); ++i) {
    std::int64_t expected = mlp_width(config, static_cast<std::int64_t>(i));
    settle(reader, "feed_forward_length", i, widths[i], expected);
  }
}

}  // namespace

Result<ModelConfig> config_from_hf(const Json& json) {
  ConfigReader root(json);
  ConfigReader text = hf_text_section(root);
  ModelConfig config;
  Gemma4Config& own = config.gemma4;
  config.head = HeadRule::kTied;
  read_hf_common(root, text, config);
  config.head = HeadRule::kTied;  // always, whatever the file says
  refuse_other_activation(text, "hidden_activation", "gelu_pytorch_tanh");
  read_hf_layers(text, config);
  own.full_head_dim = text.nullable_integer("global_head_dim", kHeadDimRange).value_or(512);
  own.full_value_is_key = text.nullable_flag("attention_k_eq_v").value_or(false);
  const auto full_kv = text.nullable_integer("num_global_key_value_heads", kHeadRange);
  own.full_kv_heads = own.full_value_is_key && full_kv ? *full_kv : config.num_kv_heads;
  read_hf_rope_of_kinds(text, config);
  own.shared_kv_layers = text.nullable_integer("num_kv_shared_layers", {0, config.num_layers - 1}).value_or(0);
  own.wide_shared_mlp = text.nullable_flag("use_double_wide_mlp").value_or(false);
  // Absent means 256; models without per-layer embeddings say 0 or null.
  const bool stated = text.find("hidden_size_per_layer_input") != nullptr;
  own.per_layer_width =
      text.nullable_integer("hidden_size_per_layer_input", {0, kWidthRange.high}).value_or(stated ? 0 : 256);
  own.per_layer_vocab = text.nullable_integer("vocab_size_per_layer_input", kVocabRange).value_or(262144);
  config.logit_soft_cap = text.nullable_number("final_logit_softcapping", kCapRange).value_or(0.0);
  if (text.nullable_flag("attention_bias").value_or(false)) {
    text.refuse(ErrorCode::kUnsupported, "attention_bias true isn't supported for gemma4");
  }
  if (text.nullable_flag("enable_moe_block").value_or(false)) {
    const std::string_view width =
        text.has("moe_intermediate_size") ? "moe_intermediate_size" : "expert_intermediate_size";
    config.num_experts = text.integer("num_experts", kExpertRange);
    config.experts_per_token = text.integer("top_k_experts", {1, config.num_experts});
    config.expert_intermediate_size = text.integer(width, kWidthRange);
  }
  return finish(text, std::move(config));
}

Result<ModelConfig> config_from_gguf(const Json& keys) {
  ConfigReader reader = gguf_reader(keys, "gemma4");
  ModelConfig config;
  Gemma4Config& own = config.gemma4;
  read_gguf_common(keys, reader, config);
  own.full_head_dim = config.head_dim;
  config.head_dim = reader.integer_or("attention.key_length_swa", kHeadDimRange, own.full_head_dim);
  own.shared_kv_layers = reader.integer_or("attention.shared_kv_layers", {0, config.num_layers - 1}, 0);
  read_gguf_layers(reader, config);
  read_gguf_layer_arrays(reader, config);
  config.rope.theta = reader.number_or("rope.freq_base_swa", {1.0, 1e15}, kSlidingTheta);
  config.rope.rotary_dims = config.head_dim;
  own.full_rope.theta = reader.number_or("rope.freq_base", {1.0, 1e15}, kFullTheta);
  // The converter knows no name for this scaling; which pairs turn is said by the tensor rope_freqs.
  own.full_rope.scaling = RopeConfig::Scaling::kProportional;
  own.full_rope.rotary_dims = own.full_head_dim;
  own.per_layer_width = reader.integer_or("embedding_length_per_layer_input", {0, kWidthRange.high}, 0);
  own.per_layer_vocab = config.vocab_size;
  config.logit_soft_cap = reader.nullable_number("final_logit_softcapping", kCapRange).value_or(0.0);
  if (reader.integer_or("expert_count", {0, kExpertRange.high}, 0) > 0) read_gguf_experts(reader, config);
  return finish(reader, std::move(config));
}

std::size_t kv_layer(const ModelConfig& config, std::size_t index) {
  if (!shares_kv(config, static_cast<std::int64_t>(index))) return index;
  auto owner = static_cast<std::size_t>(config.num_layers - config.gemma4.shared_kv_layers) - 1;
  while (config.layers[owner] != config.layers[index]) --owner;  // the configuration was checked to have one
  return owner;
}

CacheShapes caches(const ModelConfig& config) {
  CacheShapes shapes = uniform_caches(config);
  for (std::int64_t i = 0; i < config.num_layers; ++i) {
    shapes.kv[static_cast<std::size_t>(i)] =
        shares_kv(config, i)
            ? KvShape{}
            : KvShape{static_cast<std::int32_t>(kv_heads(config, i)), static_cast<std::int32_t>(head_dim(config, i))};
  }
  return shapes;
}

}  // namespace vernier::gemma4
