// gemma4: the table of its tensors.
#include "model/gemma4.h"
#include "model/spec_builder.h"

namespace vernier::gemma4 {
namespace {

void add_attention_of_layer(SpecBuilder& builder, std::int64_t layer) {
  const ModelConfig& config = builder.config();
  const std::int64_t hidden = config.hidden_size;
  const std::int64_t dim = head_dim(config, layer);
  const std::int64_t kv_rows = kv_heads(config, layer) * dim;
  builder.linear({"q", "self_attn.q_proj", "attn_q"}, config.num_heads * dim, hidden);
  builder.vector({"q_norm", "self_attn.q_norm", "attn_q_norm"}, dim);
  builder.linear({"o", "self_attn.o_proj", "attn_output"}, hidden, config.num_heads * dim);
  if (shares_kv(config, layer)) return;
  add_cache_scales(builder);
  builder.linear({"k", "self_attn.k_proj", "attn_k"}, kv_rows, hidden);
  builder.vector({"k_norm", "self_attn.k_norm", "attn_k_norm"}, dim);
  const bool full = is_full(config, layer);
  if (full && config.gemma4.full_value_is_key) return;
  TensorSpec& value = builder.linear({"v", "self_attn.v_proj", "attn_v"}, kv_rows, hidden);
  value.required = !(full && config.from_gguf);  // GGUF says that K serves as V by leaving V out
}

void add_experts_of_layer(SpecBuilder& builder) {
  const ModelConfig& config = builder.config();
  const std::int64_t hidden = config.hidden_size;
  builder.vector({"experts_norm", "pre_feedforward_layernorm_2", "pre_ffw_norm_2"}, hidden);
  builder.vector({"post_mlp_norm", "post_feedforward_layernorm_1", "post_ffw_norm_1"}, hidden);
  builder.vector({"post_experts_norm", "post_feedforward_layernorm_2", "post_ffw_norm_2"}, hidden);
  builder.other_linear({"router", "router.proj", "ffn_gate_inp"}, config.num_experts, hidden);
  builder.bare_vector({"router_scale", "router.scale", "ffn_gate_inp.scale"}, {hidden});
  // In GGUF files whose experts have second-level scales this name is such a scale, with the router's factor in it.
  builder.bare_vector({"expert_scale", "router.per_expert_scale", "ffn_down_exps.scale"}, {config.num_experts})
      .required = !config.from_gguf;
  add_experts(builder, {.num_experts = config.num_experts,
                        .width = config.expert_intermediate_size,
                        .folders = {"experts.", "moe.experts."}});
}

void add_per_layer_embedding(SpecBuilder& builder) {
  const ModelConfig& config = builder.config();
  const std::int64_t hidden = config.hidden_size;
  const std::int64_t width = config.gemma4.per_layer_width;
  builder.other_linear({"ple.gate", "per_layer_input_gate", "inp_gate"}, width, hidden);
  builder.other_linear({"ple.out", "per_layer_projection", "proj"}, hidden, width);
  builder.vector({"ple.norm", "post_per_layer_input_norm", "post_norm"}, hidden);
}

}  // namespace

std::vector<TensorSpec> tensors(const ModelConfig& config) {
  SpecBuilder builder(config);
  builder.add_trunk();
  builder.add_rope_freqs(config.gemma4.full_head_dim / 2, true);
  const std::int64_t hidden = config.hidden_size;
  const std::int64_t width = config.gemma4.per_layer_width;
  if (width > 0) {
    builder.tensor(TensorKind::kEmbedding, {"ple.embed", "embed_tokens_per_layer", "per_layer_token_embd"},
                   {static_cast<std::uint64_t>(config.gemma4.per_layer_vocab),
                    static_cast<std::uint64_t>(config.num_layers * width)});
    builder.other_linear({"ple.model", "per_layer_model_projection", "per_layer_model_proj"}, config.num_layers * width,
                         hidden);
    builder.vector({"ple.model_norm", "per_layer_projection_norm", "per_layer_proj_norm"}, width);
  }
  for (std::int64_t i = 0; i < config.num_layers; ++i) {
    builder.begin_layer(i);
    builder.vector({"attn_norm", "input_layernorm", "attn_norm"}, hidden);
    builder.vector({"post_attn_norm", "post_attention_layernorm", "post_attention_norm"}, hidden);
    builder.vector({"ffn_norm", "pre_feedforward_layernorm", "ffn_norm"}, hidden);
    builder.vector({"post_ffn_norm", "post_feedforward_layernorm", "post_ffw_norm"}, hidden);
    builder.bare_vector({"layer_scale", "layer_scalar", "layer_output_scale.weight"}, {1});
    add_attention_of_layer(builder, i);
    add_mlp(builder, mlp_width(config, i));
    if (config.num_experts > 0) add_experts_of_layer(builder);
    if (width > 0) add_per_layer_embedding(builder);
  }
  return builder.take();
}

std::vector<IgnoreRule> ignored(const ModelConfig& config) {
  std::vector<IgnoreRule> rules = common_ignored(config);
  ignore_encoders(rules);
  for (std::int64_t i = config.num_layers - config.gemma4.shared_kv_layers; i < config.num_layers; ++i) {
    const std::string layer = config.from_gguf ? fmt::format("blk.{}.attn_", i)
                                               : fmt::format("{}layers.{}.self_attn.", config.name_prefix, i);
    const std::string_view projection = config.from_gguf ? "" : "_proj";
    rules.push_back({fmt::format("{}k{}.*", layer, projection), "kv-shared"});
    rules.push_back({fmt::format("{}v{}.*", layer, projection), "kv-shared"});
    rules.push_back({layer + "k_norm.*", "kv-shared"});
  }
  return rules;
}

}  // namespace vernier::gemma4
