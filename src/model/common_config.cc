#include "model/common_config.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <utility>

namespace vernier {
namespace {

constexpr NumberRange kEpsRange{0.0, 0.1};
constexpr NumberRange kThetaRange{1.0, 1e15};
constexpr NumberRange kFactorRange{1.0, 1e6};
constexpr NumberRange kPositionRange{1.0, 1e9};
constexpr IntRange kContextRange{1, std::numeric_limits<std::int64_t>::max()};
constexpr std::int64_t kMaxContext = std::int64_t{1} << 30;  // positions are 32-bit

void set_context(std::int64_t length, std::string_view key, ModelConfig& config) {
  config.context_length = std::min(length, kMaxContext);
  if (length > kMaxContext) {
    config.warnings.push_back(fmt::format("{} {} is capped at {}", key, length, kMaxContext));
  }
}

/// Width of a head where the file doesn't say.
std::int64_t derived_head_dim(ConfigReader& reader, std::string_view heads_key, const ModelConfig& config) {
  if (config.hidden_size % config.num_heads != 0) {
    reader.refuse(ErrorCode::kCorrupt, "{} {} doesn't divide the hidden size {} and no head width is given",
                  reader.name_of(heads_key), config.num_heads, config.hidden_size);
    return 1;
  }
  return config.hidden_size / config.num_heads;
}

/// A token id that may be absent, null or -1 ("none").
std::optional<std::int64_t> read_token_id(ConfigReader& reader, std::string_view key, std::int64_t vocab_size) {
  const std::int64_t high = vocab_size > 0 ? vocab_size - 1 : kVocabRange.high - 1;
  const std::optional<std::int64_t> id = reader.nullable_integer(key, {-1, high});
  return id && *id < 0 ? std::nullopt : id;
}

void add_eos_ids(ConfigReader& reader, ModelConfig& config) {
  for (const std::int64_t id : reader.integer_or_integers("eos_token_id", {-1, config.vocab_size - 1})) {
    if (id >= 0 && std::find(config.eos_ids.begin(), config.eos_ids.end(), id) == config.eos_ids.end()) {
      config.eos_ids.push_back(id);
    }
  }
}

void read_yarn(ConfigReader& keys, double context, RopeConfig& rope) {
  rope.original_context = keys.nullable_number("original_max_position_embeddings", kPositionRange).value_or(context);
  rope.beta_fast = keys.number_or("beta_fast", {1e-3, 1e6}, 32.0);
  rope.beta_slow = keys.number_or("beta_slow", {1e-3, 1e6}, 1.0);
  rope.truncate = keys.flag_or("truncate", true);
  rope.attention_factor = keys.nullable_number("attention_factor", {1e-3, 1e3});
  const auto mscale = keys.nullable_number("mscale", {0.0, 1e3});
  const auto mscale_all_dim = keys.nullable_number("mscale_all_dim", {0.0, 1e3});
  if (!rope.attention_factor && mscale.value_or(0.0) != 0.0 && mscale_all_dim.value_or(0.0) != 0.0) {
    const auto magnitude = [&](double scale) { return 0.1 * scale * std::log(rope.factor) + 1.0; };
    rope.attention_factor = magnitude(*mscale) / magnitude(*mscale_all_dim);
  }
}

}  // namespace

// --- config.json -----------------------------------------------------------------------------------------------------

ConfigReader hf_text_section(ConfigReader& root) {
  return root.has("text_config") ? root.section("text_config") : root;
}

void read_hf_common(ConfigReader& root, ConfigReader& text, ModelConfig& config) {
  config.vocab_size = text.integer("vocab_size", kVocabRange);
  config.hidden_size = text.integer("hidden_size", kWidthRange);
  config.num_layers = text.integer("num_hidden_layers", kLayerRange);
  config.num_heads = text.integer("num_attention_heads", kHeadRange);
  config.num_kv_heads = text.nullable_integer("num_key_value_heads", kHeadRange).value_or(config.num_heads);
  const auto head_dim = text.nullable_integer("head_dim", kHeadDimRange);
  config.head_dim = head_dim ? *head_dim : derived_head_dim(text, "num_attention_heads", config);
  config.intermediate_size = text.nullable_integer("intermediate_size", kWidthRange).value_or(0);
  set_context(text.integer("max_position_embeddings", kContextRange), "max_position_embeddings", config);
  config.norm_eps = text.number("rms_norm_eps", kEpsRange);
  auto tied = text.nullable_flag("tie_word_embeddings");
  if (!tied) tied = root.nullable_flag("tie_word_embeddings");
  if (tied) config.head = *tied ? HeadRule::kTied : HeadRule::kOwn;
  add_eos_ids(root, config);
  add_eos_ids(text, config);
  config.bos_id = read_token_id(text, "bos_token_id", config.vocab_size);
}

void read_hf_rope_keys(ConfigReader& keys, double default_theta, double context, RopeConfig& rope) {
  rope.theta = keys.number_or("rope_theta", kThetaRange, default_theta);
  const std::string type = keys.has("rope_type") ? keys.text_or("rope_type", "") : keys.text_or("type", "default");
  if (type == "default" || type == "none") return;
  if (type == "linear") {
    rope.scaling = RopeConfig::Scaling::kLinear;
  } else if (type == "llama3") {
    rope.scaling = RopeConfig::Scaling::kLlama3;
  } else if (type == "yarn") {
    rope.scaling = RopeConfig::Scaling::kYarn;
  } else if (type == "proportional") {
    rope.scaling = RopeConfig::Scaling::kProportional;
    rope.factor = keys.number_or("factor", kFactorRange, 1.0);
    return;
  } else {
    keys.refuse(ErrorCode::kUnsupported,
                "{} '{}' isn't supported; supported: default, linear, llama3, yarn, proportional",
                keys.name_of("rope_type"), escape(type));
    return;
  }
  rope.factor = keys.number("factor", kFactorRange);
  if (rope.scaling == RopeConfig::Scaling::kYarn) read_yarn(keys, context, rope);
  if (rope.scaling != RopeConfig::Scaling::kLlama3) return;
  rope.original_context = keys.number("original_max_position_embeddings", kPositionRange);
  rope.low_freq_factor = keys.number("low_freq_factor", {1e-3, 1e6});
  rope.high_freq_factor = keys.number("high_freq_factor", {1e-3, 1e6});
  if (rope.high_freq_factor <= rope.low_freq_factor) {
    keys.refuse(ErrorCode::kCorrupt, "{} {} must be above low_freq_factor {}", keys.name_of("high_freq_factor"),
                rope.high_freq_factor, rope.low_freq_factor);
  }
}

void read_hf_rope(ConfigReader& text, ModelConfig& config, double default_theta, double default_part) {
  const double theta = text.nullable_number("rope_theta", kThetaRange).value_or(default_theta);
  ConfigReader keys = text.section(text.has("rope_parameters") ? "rope_parameters" : "rope_scaling");
  read_hf_rope_keys(keys, theta, static_cast<double>(config.context_length), config.rope);
  const double outer = text.nullable_number("partial_rotary_factor", {0.0, 1.0}).value_or(default_part);
  const double part = keys.nullable_number("partial_rotary_factor", {0.0, 1.0}).value_or(outer);
  config.rope.rotary_dims = static_cast<std::int64_t>(static_cast<double>(config.head_dim) * part);
}

std::vector<LayerKind> read_hf_layer_types(ConfigReader& text, std::int64_t num_layers) {
  std::vector<LayerKind> kinds;
  const std::vector<std::string> names = text.texts("layer_types");
  if (!names.empty() && static_cast<std::int64_t>(names.size()) != num_layers) {
    text.refuse(ErrorCode::kCorrupt, "{} has {} entries, expected one for each of {} layers",
                text.name_of("layer_types"), names.size(), num_layers);
    return kinds;
  }
  for (const std::string& name : names) {
    if (name == "full_attention") {
      kinds.push_back(LayerKind::kFullAttention);
    } else if (name == "sliding_attention") {
      kinds.push_back(LayerKind::kSlidingAttention);
    } else if (name == "linear_attention") {
      kinds.push_back(LayerKind::kLinearAttention);
    } else {
      text.refuse(ErrorCode::kUnsupported,
                  "{}[{}] is '{}', expected full_attention, sliding_attention or "
                  "linear_attention",
                  text.name_of("layer_types"), kinds.size(), escape(name));
      kinds.push_back(LayerKind::kFullAttention);
    }
  }
  return kinds;
}

void read_hf_sliding_window(ConfigReader& text, ModelConfig& config) {
  config.layers = read_hf_layer_types(text, config.num_layers);
  const auto count = static_cast<std::size_t>(config.num_layers);
  if (config.layers.empty()) {
    const std::int64_t first = text.nullable_integer("max_window_layers", {0, 1 << 20}).value_or(0);
    config.layers.assign(count, LayerKind::kSlidingAttention);
    for (std::int64_t i = 0; i < std::min(first, config.num_layers); ++i) {
      config.layers[static_cast<std::size_t>(i)] = LayerKind::kFullAttention;
    }
  }
  const auto window = text.nullable_integer("sliding_window", {1, config.context_length});
  if (window) {
    config.sliding_window = *window;
  } else {
    config.layers.assign(count, LayerKind::kFullAttention);
  }
}

void refuse_other_activation(ConfigReader& text, std::string_view key, std::string_view expected) {
  const std::string found = text.text_or(key, expected);
  if (found == expected) return;
  text.refuse(ErrorCode::kUnsupported, "{} '{}' isn't supported; expected '{}'", text.name_of(key), escape(found),
              expected);
}

void read_hf_experts(ConfigReader& text, ModelConfig& config) {
  const std::string_view count = text.has("num_experts") ? "num_experts" : "num_local_experts";
  config.num_experts = text.integer(count, kExpertRange);
  config.experts_per_token = text.integer("num_experts_per_tok", {1, config.num_experts});
}

// --- GGUF keys -------------------------------------------------------------------------------------------------------

ConfigReader gguf_reader(const Json& keys, std::string_view name) {
  return ConfigReader(keys, std::string(name) + ".", ConfigReader::Numbers::kFloats);
}

void read_gguf_common(const Json& keys, ConfigReader& reader, ModelConfig& config) {
  config.from_gguf = true;
  config.head = HeadRule::kIfStored;
  config.num_layers = reader.integer("block_count", kLayerRange);
  config.hidden_size = reader.integer("embedding_length", kWidthRange);
  config.num_heads = reader.integer("attention.head_count", kHeadRange);
  const auto head_dim = reader.nullable_integer("attention.key_length", kHeadDimRange);
  config.head_dim = head_dim ? *head_dim : derived_head_dim(reader, "attention.head_count", config);
  const std::int64_t value_dim = reader.integer_or("attention.value_length", kHeadDimRange, config.head_dim);
  if (value_dim != config.head_dim) {
    reader.refuse(ErrorCode::kUnsupported, "{} {} differs from the key length {}",
                  reader.name_of("attention.value_length"), value_dim, config.head_dim);
  }
  set_context(reader.integer("context_length", kContextRange), reader.name_of("context_length"), config);
  config.norm_eps = reader.number("attention.layer_norm_rms_epsilon", kEpsRange);

  ConfigReader tokenizer(keys, "tokenizer.ggml.");
  const std::int64_t num_tokens = tokenizer.integer_or("tokens", {1, kVocabRange.high}, 0);
  config.vocab_size = reader.integer_or("vocab_size", kVocabRange, num_tokens);
  if (num_tokens > config.vocab_size) {
    reader.refuse(ErrorCode::kCorrupt, "{} {} is below the tokenizer's {} tokens", reader.name_of("vocab_size"),
                  config.vocab_size, num_tokens);
  }
  const auto eos = read_token_id(tokenizer, "eos_token_id", config.vocab_size);
  if (eos) config.eos_ids.push_back(*eos);
  config.bos_id = read_token_id(tokenizer, "bos_token_id", config.vocab_size);
  const Status tokenizer_status = tokenizer.status();
  if (!tokenizer_status) reader.refuse(tokenizer_status.error());
}

std::vector<std::int64_t> read_gguf_per_layer(ConfigReader& reader, std::string_view key, std::int64_t num_layers,
                                              IntRange range) {
  std::vector<std::int64_t> values = reader.integer_or_integers(key, range);
  const auto count = static_cast<std::size_t>(num_layers);
  const Json* stored = reader.find(key);
  if (stored != nullptr && !stored->is_array()) values.resize(count, values.empty() ? range.low : values.front());
  if (stored != nullptr && values.size() != count) {
    reader.refuse(ErrorCode::kCorrupt, "{} has {} entries, expected one for each of {} layers", reader.name_of(key),
                  values.size(), num_layers);
    values.assign(count, range.low);
  }
  return values;
}

void read_gguf_kv_heads(ConfigReader& reader, ModelConfig& config) {
  constexpr std::string_view kKey = "attention.head_count_kv";
  const auto heads = read_gguf_per_layer(reader, kKey, config.num_layers, kHeadRange);
  config.num_kv_heads = heads.empty() ? config.num_heads : heads.front();
  for (std::size_t i = 0; i < heads.size(); ++i) {
    if (heads[i] == heads.front()) continue;
    reader.refuse(ErrorCode::kUnsupported, "{}[{}] is {}, but all layers of this architecture must agree ({})",
                  reader.name_of(kKey), i, heads[i], heads.front());
  }
}

void read_gguf_rope(ConfigReader& reader, ModelConfig& config, double default_theta) {
  RopeConfig& rope = config.rope;
  rope.theta = reader.number_or("rope.freq_base", kThetaRange, default_theta);
  rope.rotary_dims = reader.integer_or("rope.dimension_count", {2, config.head_dim}, config.head_dim);
  const std::string type = reader.text_or("rope.scaling.type", "none");
  if (type == "none") return;
  if (type != "linear" && type != "yarn") {
    reader.refuse(ErrorCode::kUnsupported, "{} '{}' isn't supported; supported: none, linear, yarn",
                  reader.name_of("rope.scaling.type"), escape(type));
    return;
  }
  rope.factor = reader.number("rope.scaling.factor", kFactorRange);
  rope.scaling = RopeConfig::Scaling::kLinear;
  if (type == "linear") return;
  rope.scaling = RopeConfig::Scaling::kYarn;
  rope.original_context = static_cast<double>(
      reader.integer_or("rope.scaling.original_context_length", {1, kMaxContext}, config.context_length));
  rope.beta_fast = reader.number_or("rope.scaling.yarn_beta_fast", {1e-3, 1e6}, 32.0);
  rope.beta_slow = reader.number_or("rope.scaling.yarn_beta_slow", {1e-3, 1e6}, 1.0);
  // The key multiplies the usual factor, unlike config.json's attention_factor, which replaces it.
  const double multiplier = reader.number_or("rope.scaling.yarn_attn_factor", {1e-3, 1e3}, 1.0);
  rope.attention_factor = multiplier * (0.1 * std::log(rope.factor) + 1.0);
  if (reader.number_or("rope.scaling.yarn_ext_factor", {-1.0, 1.0}, 1.0) == 0.0) {
    reader.refuse(ErrorCode::kUnsupported, "{} 0 (YaRN without extrapolation) isn't supported",
                  reader.name_of("rope.scaling.yarn_ext_factor"));
  }
}

void read_gguf_experts(ConfigReader& reader, ModelConfig& config) {
  config.num_experts = reader.integer("expert_count", kExpertRange);
  config.experts_per_token = reader.integer("expert_used_count", {1, config.num_experts});
  const std::int64_t derived = config.intermediate_size / config.experts_per_token;
  config.expert_intermediate_size = derived > 0 ? reader.integer_or("expert_feed_forward_length", kWidthRange, derived)
                                                : reader.integer("expert_feed_forward_length", kWidthRange);
}

// --- both ------------------------------------------------------------------------------------------------------------

Result<ModelConfig> finish_config(ConfigReader& reader, ModelConfig config) {
  VN_TRY(reader.status());
  const auto count = static_cast<std::size_t>(config.num_layers);
  if (config.layers.empty()) config.layers.assign(count, LayerKind::kFullAttention);
  if (config.sparse.empty()) config.sparse.assign(count, config.num_experts > 0);
  if (config.rope.rotary_dims == 0) config.rope.rotary_dims = config.head_dim;

  if (config.num_heads % config.num_kv_heads != 0) {
    return fail(ErrorCode::kCorrupt, "attention.head_count {} isn't a multiple of attention.head_count_kv {}",
                config.num_heads, config.num_kv_heads);
  }
  if (config.rope.rotary_dims % 2 != 0 || config.rope.rotary_dims < 2 || config.rope.rotary_dims > config.head_dim) {
    return fail(ErrorCode::kCorrupt, "rope.dimension_count must be even and in 2..{} (the head width), found {}",
                config.head_dim, config.rope.rotary_dims);
  }
  const bool has_dense = std::find(config.sparse.begin(), config.sparse.end(), false) != config.sparse.end();
  if (has_dense && config.intermediate_size == 0) {
    return fail(ErrorCode::kCorrupt, "{} is missing, and there are layers with a dense MLP",
                reader.name_of(config.from_gguf ? "feed_forward_length" : "intermediate_size"));
  }
  if (config.norm_eps == 0.0) config.warnings.emplace_back("the epsilon of the RMS norms is 0");
  return config;
}

CacheShapes uniform_caches(const ModelConfig& config) {
  const KvShape shape{static_cast<std::int32_t>(config.num_kv_heads), static_cast<std::int32_t>(config.head_dim)};
  return {std::vector<KvShape>(static_cast<std::size_t>(config.num_layers), shape), {}};
}

}  // namespace vernier
