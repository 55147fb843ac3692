// qwen35 and qwen35moe: the table of their tensors, the MTP block's included.
#include "model/qwen35.h"
#include "model/spec_builder.h"

namespace vernier::qwen35 {
namespace {

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

}  // namespace

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

}  // namespace vernier::qwen35
