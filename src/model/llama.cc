// llama: Llama 2 and 3, Mistral, SmolLM2. Pre-norm attention and gated MLP, nothing else.
#include "model/architectures.h"
#include "model/common_config.h"
#include "model/plain_decoder.h"
#include "model/spec_builder.h"

namespace vernier {
namespace {

constexpr std::string_view kHfTypes[] = {"llama", "mistral"};
constexpr std::string_view kGgufNames[] = {"llama"};

Result<ModelConfig> config_from_hf(const Json& json) {
  ConfigReader reader(json);
  ModelConfig config;
  read_hf_common(reader, reader, config);
  read_hf_rope(reader, config, 10000.0);
  refuse_other_activation(reader, "hidden_act", "silu");
  const bool attention_bias = reader.nullable_flag("attention_bias").value_or(false);
  config.qkv_bias = attention_bias;
  config.output_bias = attention_bias;
  config.mlp_bias = reader.nullable_flag("mlp_bias").value_or(false);
  if (reader.text_or("model_type", "llama") == "mistral") read_hf_sliding_window(reader, config);
  return finish_config(reader, std::move(config));
}

Result<ModelConfig> config_from_gguf(const Json& keys) {
  ConfigReader reader = gguf_reader(keys, "llama");
  ModelConfig config;
  read_gguf_common(keys, reader, config);
  read_gguf_kv_heads(reader, config);
  config.intermediate_size = reader.integer("feed_forward_length", kWidthRange);
  read_gguf_rope(reader, config, 10000.0);
  config.rope.interleaved = true;  // the converter permutes the rows of q and k
  if (reader.integer_or("expert_count", {0, kExpertRange.high}, 0) != 0) {
    reader.refuse(ErrorCode::kUnsupported, "{}: Mixtral isn't supported", reader.name_of("expert_count"));
  }
  return finish_config(reader, std::move(config));
}

std::vector<TensorSpec> tensors(const ModelConfig& config) {
  SpecBuilder builder(config);
  builder.add_trunk();
  builder.add_rope_freqs(config.rope.rotary_dims / 2, false);
  AttentionSpecs attention = attention_specs(config);
  BiasRule mlp_bias = config.mlp_bias ? BiasRule::kRequired : BiasRule::kNone;
  if (config.from_gguf) attention.qkv_bias = attention.output_bias = mlp_bias = BiasRule::kOptional;
  for (std::int64_t i = 0; i < config.num_layers; ++i) {
    builder.begin_layer(i);
    add_layer_norms(builder);
    add_attention(builder, attention);
    add_mlp(builder, config.intermediate_size, mlp_bias);
  }
  return builder.take();
}

Result<std::unique_ptr<Model>> build(ModelConfig config, const WeightSet& weights, const ModelContext& context) {
  return PlainDecoder::build(std::move(config), weights, context);
}

}  // namespace

Architecture llama_architecture() {
  return {"llama", kHfTypes,       kGgufNames, config_from_hf, config_from_gguf,
          tensors, common_ignored, build,      uniform_caches};
}

}  // namespace vernier
