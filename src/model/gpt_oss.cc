// gpt-oss: 20b and 120b. Attention with sinks and alternating windows, biases everywhere, experts in every layer.
#include "model/architectures.h"
#include "model/common_config.h"
#include "model/plain_decoder.h"
#include "model/spec_builder.h"

namespace vernier {
namespace {

constexpr std::string_view kHfTypes[] = {"gpt_oss"};
constexpr std::string_view kGgufNames[] = {"gpt-oss", "gptoss"};
constexpr double kTheta = 150000.0;

/// Even layers slide, unless the file says otherwise.
void set_default_layers(ModelConfig& config) {
  for (std::int64_t i = 0; i < config.num_layers; ++i) {
    config.layers.push_back(i % 2 == 0 ? LayerKind::kSlidingAttention : LayerKind::kFullAttention);
  }
}

Result<ModelConfig> config_from_hf(const Json& json) {
  ConfigReader reader(json);
  ModelConfig config;
  read_hf_common(reader, reader, config);
  read_hf_rope(reader, config, kTheta);
  config.layers = read_hf_layer_types(reader, config.num_layers);
  if (config.layers.empty()) set_default_layers(config);
  config.sliding_window = reader.integer("sliding_window", {1, config.context_length});
  config.qkv_bias = config.output_bias = reader.nullable_flag("attention_bias").value_or(true);
  read_hf_experts(reader, config);
  config.expert_intermediate_size = config.intermediate_size;
  config.swiglu_limit = reader.number_or("swiglu_limit", {1e-3, 1e6}, 7.0);
  config.swiglu_alpha = reader.number_or("swiglu_alpha", {1e-3, 1e3}, 1.702);
  return finish_config(reader, std::move(config));
}

Result<ModelConfig> config_from_gguf(const Json& keys) {
  const Json* name = keys.find("general.architecture");
  ConfigReader reader = gguf_reader(keys, name != nullptr && name->is_string() ? name->as_string() : "gpt-oss");
  ModelConfig config;
  read_gguf_common(keys, reader, config);
  read_gguf_kv_heads(reader, config);
  config.intermediate_size = reader.integer_or("feed_forward_length", kWidthRange, config.hidden_size);
  read_gguf_rope(reader, config, kTheta);
  config.rope.truncate = false;  // GGUF has no key for it; the published models never round
  set_default_layers(config);
  config.sliding_window = reader.integer("attention.sliding_window", {1, config.context_length});
  config.qkv_bias = config.output_bias = true;
  read_gguf_experts(reader, config);
  if (!reader.has("expert_feed_forward_length")) config.expert_intermediate_size = config.intermediate_size;
  return finish_config(reader, std::move(config));
}

std::vector<TensorSpec> tensors(const ModelConfig& config) {
  SpecBuilder builder(config);
  builder.add_trunk();
  const std::int64_t hidden = config.hidden_size;
  const std::int64_t experts = config.num_experts;
  const std::int64_t width = config.expert_intermediate_size;
  for (std::int64_t i = 0; i < config.num_layers; ++i) {
    builder.begin_layer(i);
    add_layer_norms(builder, "post_attention_norm");
    add_attention(builder, attention_specs(config));
    TensorSpec& sinks = builder.bare_vector({"sinks", "self_attn.sinks", "attn_sinks.weight"}, {config.num_heads});
    if (config.from_gguf) builder.also(sinks, "attn_sinks", StoredAs::kWhole, false);
    builder.other_linear({"router", "mlp.router", "ffn_gate_inp"}, experts, hidden);
    builder.bare_vector({"router_bias", "mlp.router.bias", "ffn_gate_inp.bias"}, {experts});
    add_experts(builder, {.num_experts = experts, .width = width, .interleaved = true});
    TensorSpec& gate = builder.bare_vector({"experts.gate_bias", "mlp.experts.gate_up_proj_bias", "ffn_gate_exps.bias"},
                                           {experts, width});
    if (!config.from_gguf) gate.spellings.front().stored_as = StoredAs::kEvenRows;
    TensorSpec& up =
        builder.bare_vector({"experts.up_bias", "mlp.experts.gate_up_proj_bias", "ffn_up_exps.bias"}, {experts, width});
    if (!config.from_gguf) up.spellings.front().stored_as = StoredAs::kOddRows;
    builder.bare_vector({"experts.down_bias", "mlp.experts.down_proj_bias", "ffn_down_exps.bias"}, {experts, hidden});
  }
  return builder.take();
}

Result<std::unique_ptr<Model>> build(ModelConfig config, const WeightSet& weights, const ModelContext& context) {
  const PlainOptions options{.activation = {.kind = Activation::kClampedSwiglu,
                                            .alpha = static_cast<float>(config.swiglu_alpha),
                                            .limit = static_cast<float>(config.swiglu_limit)}};
  return PlainDecoder::build(std::move(config), weights, context, options);
}

}  // namespace

Architecture gpt_oss_architecture() {
  return {"gpt-oss", kHfTypes,       kGgufNames, config_from_hf, config_from_gguf,
          tensors,   common_ignored, build,      uniform_caches};
}

}  // namespace vernier
