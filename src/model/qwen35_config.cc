// qwen35 and qwen35moe: configuration, from config.json and from GGUF keys.
#include <algorithm>

#include "model/common_config.h"
#include "model/qwen35.h"

namespace vernier::qwen35 {
namespace {

constexpr double kTheta = 1e7;

void set_interval_layers(std::int64_t interval, ModelConfig& config) {
  for (std::int64_t i = 0; i < config.num_layers; ++i) {
    config.layers.push_back((i + 1) % interval == 0 ? LayerKind::kFullAttention : LayerKind::kLinearAttention);
  }
}

/// The checks that both containers need, after all keys are read.
Result<ModelConfig> finish(ConfigReader& reader, ModelConfig config) {
  const DeltaNetConfig& net = config.delta_net;
  if (net.value_heads % net.key_heads != 0) {
    reader.refuse(ErrorCode::kCorrupt, "{} value heads of the delta net aren't a multiple of {} key heads",
                  net.value_heads, net.key_heads);
  }
  return finish_config(reader, std::move(config));
}

/// Which of the file's blocks are delta nets: said by an array over all blocks, or by the interval.
void read_gguf_layers(ConfigReader& reader, std::int64_t num_blocks, ModelConfig& config) {
  const std::vector<bool> recurrent = reader.flags("attention.recurrent_layers");
  if (recurrent.empty()) {
    set_interval_layers(reader.integer_or("full_attention_interval", kLayerRange, 4), config);
  } else if (static_cast<std::int64_t>(recurrent.size()) != num_blocks) {
    reader.refuse(ErrorCode::kCorrupt, "{} has {} entries, expected one for each of {} blocks",
                  reader.name_of("attention.recurrent_layers"), recurrent.size(), num_blocks);
  } else {
    for (std::int64_t i = 0; i < config.num_layers; ++i) {
      config.layers.push_back(recurrent[static_cast<std::size_t>(i)] ? LayerKind::kLinearAttention
                                                                     : LayerKind::kFullAttention);
    }
  }
}

}  // namespace

Result<ModelConfig> config_from_hf(const Json& json, bool sparse) {
  ConfigReader root(json);
  ConfigReader text = hf_text_section(root);
  ModelConfig config;
  config.head = HeadRule::kIfStored;  // published files leave tie_word_embeddings out
  read_hf_common(root, text, config);
  read_hf_rope(text, config, kTheta, 0.25);
  refuse_other_activation(text, "hidden_act", "silu");
  refuse_other_activation(text, "output_gate_type", "swish");
  config.layers = read_hf_layer_types(text, config.num_layers);
  const std::int64_t interval = text.nullable_integer("full_attention_interval", kLayerRange).value_or(4);
  if (config.layers.empty()) set_interval_layers(interval, config);
  config.delta_net = {.key_heads = text.integer_or("linear_num_key_heads", kHeadRange, 16),
                      .value_heads = text.integer_or("linear_num_value_heads", kHeadRange, 32),
                      .key_head_dim = text.integer_or("linear_key_head_dim", kHeadDimRange, 128),
                      .value_head_dim = text.integer_or("linear_value_head_dim", kHeadDimRange, 128),
                      .conv_width = text.integer_or("linear_conv_kernel_dim", {2, 64}, 4)};
  config.mtp_layers = text.nullable_integer("mtp_num_hidden_layers", {0, 1}).value_or(0);
  if (!text.nullable_flag("attn_output_gate").value_or(true) || text.nullable_flag("attention_bias").value_or(false)) {
    text.refuse(ErrorCode::kUnsupported, "attn_output_gate must be true and attention_bias false");
  }
  if (sparse) {
    read_hf_experts(text, config);
    config.expert_intermediate_size = text.integer("moe_intermediate_size", kWidthRange);
    config.shared_expert_intermediate_size = text.integer("shared_expert_intermediate_size", kWidthRange);
  }
  return finish(text, std::move(config));
}

Result<ModelConfig> config_from_gguf(const Json& keys, bool sparse) {
  ConfigReader reader = gguf_reader(keys, sparse ? "qwen35moe" : "qwen35");
  ModelConfig config;
  read_gguf_common(keys, reader, config);
  read_gguf_rope(reader, config, kTheta);
  const std::int64_t num_blocks = config.num_layers;
  // Some writers give delta net blocks 0 KV heads.
  const auto kv_heads = read_gguf_per_layer(reader, "attention.head_count_kv", num_blocks, {0, kHeadRange.high});
  config.num_kv_heads = kv_heads.empty() ? config.num_heads : *std::max_element(kv_heads.begin(), kv_heads.end());
  if (config.num_kv_heads == 0) {
    reader.refuse(ErrorCode::kCorrupt, "{} must be in 1..{}, found 0", reader.name_of("attention.head_count_kv"),
                  kHeadRange.high);
    config.num_kv_heads = 1;
  }
  config.mtp_layers = reader.integer_or("nextn_predict_layers", {0, 1}, 0);
  config.num_layers = std::max<std::int64_t>(num_blocks - config.mtp_layers, 1);
  read_gguf_layers(reader, num_blocks, config);
  const std::int64_t value_heads = reader.integer("ssm.time_step_rank", kHeadRange);
  const std::int64_t inner = reader.integer("ssm.inner_size", kWidthRange);
  if (inner % value_heads != 0) {
    reader.refuse(ErrorCode::kCorrupt, "{} {} isn't a multiple of ssm.time_step_rank {}",
                  reader.name_of("ssm.inner_size"), inner, value_heads);
  }
  config.delta_net = {.key_heads = reader.integer("ssm.group_count", kHeadRange),
                      .value_heads = value_heads,
                      .key_head_dim = reader.integer("ssm.state_size", kHeadDimRange),
                      .value_head_dim = inner / value_heads,
                      .conv_width = reader.integer("ssm.conv_kernel", {2, 64})};
  config.intermediate_size = reader.integer_or("feed_forward_length", {0, kWidthRange.high}, 0);
  if (sparse) {
    read_gguf_experts(reader, config);
    config.shared_expert_intermediate_size = reader.integer("expert_shared_feed_forward_length", kWidthRange);
  }
  return finish(reader, std::move(config));
}

CacheShapes caches(const ModelConfig& config) {
  CacheShapes shapes = uniform_caches(config);
  const DeltaNetConfig& net = config.delta_net;
  shapes.state.resize(shapes.kv.size());
  for (std::size_t i = 0; i < shapes.kv.size(); ++i) {
    if (config.layers[i] != LayerKind::kLinearAttention) continue;
    shapes.kv[i] = {};
    shapes.state[i] = {net.value_heads * net.key_head_dim * net.value_head_dim, (net.conv_width - 1) * net.channels()};
  }
  if (config.mtp_layers > 0) {  // the draft block's attention has a cache of its own
    shapes.kv.push_back({static_cast<std::int32_t>(config.num_kv_heads), static_cast<std::int32_t>(config.head_dim)});
  }
  return shapes;
}

}  // namespace vernier::qwen35
