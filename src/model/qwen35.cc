// qwen35 and qwen35moe: Qwen3.5, 3.6 and 3.8. Three layers of four are gated delta nets, the fourth is gated full
// attention; an MTP block may follow. Here: configuration and tensors; the delta net's block is in blocks/.
#include <algorithm>

#include "model/architectures.h"
#include "model/common_config.h"
#include "model/spec_builder.h"

namespace vernier {
namespace {

constexpr std::string_view kDenseTypes[] = {"qwen3_5", "qwen3_5_text"};
constexpr std::string_view kDenseNames[] = {"qwen35"};
constexpr std::string_view kSparseTypes[] = {"qwen3_5_moe", "qwen3_5_moe_text"};
constexpr std::string_view kSparseNames[] = {"qwen35moe"};
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

Result<ModelConfig> config_from_gguf(const Json& keys, bool sparse) {
  ConfigReader reader = gguf_reader(keys, sparse ? kSparseNames[0] : kDenseNames[0]);
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

// --- tensors ---------------------------------------------------------------------------------------------------------

void add_delta_net(SpecBuilder& builder) {
  const DeltaNetConfig& net = builder.config().delta_net;
  const std::int64_t hidden = builder.config().hidden_size;
  builder.linear({"delta.qkv", "linear_attn.in_proj_qkv", "attn_qkv"}, net.channels(), hidden);
  builder.linear({"delta.z", "linear_attn.in_proj_z", "attn_gate"}, net.value_width(), hidden);
  builder.other_linear({"delta.b", "linear_attn.in_proj_b", "ssm_beta"}, net.value_heads, hidden);
  builder.other_linear({"delta.a", "linear_attn.in_proj_a", "ssm_alpha"}, net.value_heads, hidden);
  builder.tensor(TensorKind::kConvolution, {"delta.conv", "linear_attn.conv1d", "ssm_conv1d"},
                 {static_cast<std::uint64_t>(net.channels()), static_cast<std::uint64_t>(net.conv_width)});
  builder.bare_vector({"delta.a_log", "linear_attn.A_log", "ssm_a"}, {net.value_heads});
  TensorSpec& bias = builder.bare_vector({"delta.dt_bias", "linear_attn.dt_bias", "ssm_dt.bias"}, {net.value_heads});
  if (builder.config().from_gguf) builder.also(bias, "ssm_dt", StoredAs::kWhole, false);
  builder.vector({"delta.norm", "linear_attn.norm", "ssm_norm"}, net.value_head_dim);
  builder.linear({"delta.out", "linear_attn.out_proj", "ssm_out"}, hidden, net.value_width());
}

void add_feed_forward(SpecBuilder& builder) {
  const ModelConfig& config = builder.config();
  if (config.num_experts == 0) return add_mlp(builder, config.intermediate_size);
  const std::int64_t hidden = config.hidden_size;
  const std::int64_t shared = config.shared_expert_intermediate_size;
  builder.other_linear({"router", "mlp.gate", "ffn_gate_inp"}, config.num_experts, hidden);
  add_experts(builder, {.num_experts = config.num_experts, .width = config.expert_intermediate_size});
  builder.linear({"shared.gate", "mlp.shared_expert.gate_proj", "ffn_gate_shexp"}, shared, hidden);
  builder.linear({"shared.up", "mlp.shared_expert.up_proj", "ffn_up_shexp"}, shared, hidden);
  builder.linear({"shared.down", "mlp.shared_expert.down_proj", "ffn_down_shexp"}, hidden, shared);
  builder.other_linear({"shared.router", "mlp.shared_expert_gate", "ffn_gate_inp_shexp"}, 1, hidden);
}

void add_mtp(SpecBuilder& builder, const AttentionSpecs& attention, float norm_add) {
  const std::int64_t hidden = builder.config().hidden_size;
  builder.begin_mtp_root();
  builder.other_linear({"fc", "fc", "nextn.eh_proj"}, hidden, 2 * hidden);
  builder.vector({"norm", "norm", "nextn.shared_head_norm"}, hidden).add = norm_add;
  builder.vector({"embed_norm", "pre_fc_norm_embedding", "nextn.enorm"}, hidden).add = norm_add;
  builder.vector({"hidden_norm", "pre_fc_norm_hidden", "nextn.hnorm"}, hidden).add = norm_add;
  builder.begin_mtp_layer();
  add_layer_norms(builder, "post_attention_norm", norm_add);
  add_attention(builder, attention);
  add_feed_forward(builder);
}

std::vector<TensorSpec> tensors(const ModelConfig& config) {
  const float norm_add = config.from_gguf ? 0.0F : 1.0F;  // safetensors store w - 1, except for the delta net's norm
  SpecBuilder builder(config);
  builder.add_trunk(norm_add);
  AttentionSpecs attention = attention_specs(config);
  attention.q_rows *= 2;  // query and gate, head by head
  attention.head_norms = true;
  attention.norm_add = norm_add;
  for (std::int64_t i = 0; i < config.num_layers; ++i) {
    builder.begin_layer(i);
    add_layer_norms(builder, "post_attention_norm", norm_add);
    if (config.layers[static_cast<std::size_t>(i)] == LayerKind::kLinearAttention) {
      add_delta_net(builder);
    } else {
      add_attention(builder, attention);
    }
    add_feed_forward(builder);
  }
  // safetensors files may hold the block whether or not their config promises it.
  if (config.mtp_layers > 0 || !config.from_gguf) add_mtp(builder, attention, norm_add);
  return builder.take();
}

std::vector<IgnoreRule> ignored(const ModelConfig& config) {
  std::vector<IgnoreRule> rules = common_ignored(config);
  ignore_encoders(rules);
  return rules;
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
  return shapes;
}

Result<ModelConfig> dense_from_hf(const Json& config) { return config_from_hf(config, false); }
Result<ModelConfig> sparse_from_hf(const Json& config) { return config_from_hf(config, true); }
Result<ModelConfig> dense_from_gguf(const Json& keys) { return config_from_gguf(keys, false); }
Result<ModelConfig> sparse_from_gguf(const Json& keys) { return config_from_gguf(keys, true); }

}  // namespace

Architecture qwen35_architecture() {
  return {"qwen35", kDenseTypes, kDenseNames, dense_from_hf, dense_from_gguf, tensors, ignored, nullptr, caches};
}

Architecture qwen35moe_architecture() {
  return {"qwen35moe", kSparseTypes, kSparseNames, sparse_from_hf, sparse_from_gguf, tensors, ignored, nullptr, caches};
}

}  // namespace vernier
