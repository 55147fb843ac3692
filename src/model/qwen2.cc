// qwen2: Qwen2 and Qwen2.5. Llama with biases on q, k and v.
#include "model/architectures.h"
#include "model/common_config.h"
#include "model/plain_decoder.h"
#include "model/spec_builder.h"

namespace vernier {
namespace {

constexpr std::string_view kHfTypes[] = {"qwen2"};
constexpr std::string_view kGgufNames[] = {"qwen2"};
constexpr double kTheta = 10000.0;

Result<ModelConfig> config_from_hf(const Json& json) {
  ConfigReader reader(json);
  ModelConfig config;
  read_hf_common(reader, reader, config);
  read_hf_rope(reader, config, kTheta);
  refuse_other_activation(reader, "hidden_act", "silu");
  config.qkv_bias = true;
  if (reader.nullable_flag("use_sliding_window").value_or(false)) read_hf_sliding_window(reader, config);
  return finish_config(reader, std::move(config));
}

Result<ModelConfig> config_from_gguf(const Json& keys) {
  ConfigReader reader = gguf_reader(keys, "qwen2");
  ModelConfig config;
  read_gguf_common(keys, reader, config);
  read_gguf_kv_heads(reader, config);
  config.intermediate_size = reader.integer("feed_forward_length", kWidthRange);
  read_gguf_rope(reader, config, kTheta);
  config.qkv_bias = true;
  return finish_config(reader, std::move(config));
}

std::vector<TensorSpec> tensors(const ModelConfig& config) {
  SpecBuilder builder(config);
  builder.add_trunk();
  for (std::int64_t i = 0; i < config.num_layers; ++i) {
    builder.begin_layer(i);
    add_layer_norms(builder);
    add_attention(builder, attention_specs(config));
    add_mlp(builder, config.intermediate_size);
  }
  return builder.take();
}

Result<std::unique_ptr<Model>> build(ModelConfig config, const WeightSet& weights, const ModelContext& context) {
  return PlainDecoder::build(std::move(config), weights, context);
}

}  // namespace

Architecture qwen2_architecture() {
  return {"qwen2", kHfTypes,       kGgufNames, config_from_hf, config_from_gguf,
          tensors, common_ignored, build,      uniform_caches};
}

}  // namespace vernier
