// qwen3moe: Qwen3's mixture-of-experts models. qwen3 with the MLP of sparse layers replaced by routed experts.
#include "model/architectures.h"
#include "model/common_config.h"
#include "model/plain_decoder.h"
#include "model/spec_builder.h"

namespace vernier {
namespace {

constexpr std::string_view kHfTypes[] = {"qwen3_moe"};
constexpr std::string_view kGgufNames[] = {"qwen3moe"};
constexpr double kTheta = 10000.0;

/// Layer i is sparse unless mlp_only_layers names it or decoder_sparse_step skips it.
void read_sparse_layers(ConfigReader& reader, ModelConfig& config) {
  const std::int64_t step = reader.nullable_integer("decoder_sparse_step", kLayerRange).value_or(1);
  const auto dense = reader.integers("mlp_only_layers", {0, config.num_layers - 1});
  for (std::int64_t i = 0; i < config.num_layers; ++i) config.sparse.push_back((i + 1) % step == 0);
  for (const std::int64_t i : dense) config.sparse[static_cast<std::size_t>(i)] = false;
}

Result<ModelConfig> config_from_hf(const Json& json) {
  ConfigReader reader(json);
  ModelConfig config;
  read_hf_common(reader, reader, config);
  read_hf_rope(reader, config, kTheta);
  refuse_other_activation(reader, "hidden_act", "silu");
  config.qkv_bias = config.output_bias = reader.nullable_flag("attention_bias").value_or(false);
  if (reader.nullable_flag("use_sliding_window").value_or(false)) read_hf_sliding_window(reader, config);
  read_hf_experts(reader, config);
  config.expert_intermediate_size = reader.integer("moe_intermediate_size", kWidthRange);
  // The class default is false, but every published model of the family renormalises and says so.
  config.normalize_routing = reader.nullable_flag("norm_topk_prob").value_or(false);
  read_sparse_layers(reader, config);
  return finish_config(reader, std::move(config));
}

Result<ModelConfig> config_from_gguf(const Json& keys) {
  ConfigReader reader = gguf_reader(keys, "qwen3moe");
  ModelConfig config;
  read_gguf_common(keys, reader, config);
  read_gguf_kv_heads(reader, config);
  config.intermediate_size = reader.integer_or("feed_forward_length", {0, kWidthRange.high}, 0);
  read_gguf_rope(reader, config, kTheta);
  read_gguf_experts(reader, config);
  return finish_config(reader, std::move(config));
}

std::vector<TensorSpec> tensors(const ModelConfig& config) {
  SpecBuilder builder(config);
  builder.add_trunk();
  AttentionSpecs attention = attention_specs(config);
  attention.head_norms = true;
  for (std::int64_t i = 0; i < config.num_layers; ++i) {
    builder.begin_layer(i);
    add_layer_norms(builder);
    add_attention(builder, attention);
    if (!config.sparse[static_cast<std::size_t>(i)]) {
      add_mlp(builder, config.intermediate_size);
      continue;
    }
    builder.other_linear({"router", "mlp.gate", "ffn_gate_inp"}, config.num_experts, config.hidden_size);
    add_experts(builder, {.num_experts = config.num_experts, .width = config.expert_intermediate_size});
  }
  return builder.take();
}

Result<std::unique_ptr<Model>> build(ModelConfig config, const WeightSet& weights, const ModelContext& context) {
  return PlainDecoder::build(std::move(config), weights, context);
}

}  // namespace

Architecture qwen3moe_architecture() {
  return {"qwen3moe", kHfTypes,       kGgufNames, config_from_hf, config_from_gguf,
          tensors,    common_ignored, build,      uniform_caches};
}

}  // namespace vernier
