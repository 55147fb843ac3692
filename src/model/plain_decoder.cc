#include "model/plain_decoder.h"

#include <utility>

#include "model/rope.h"

namespace vernier {

Result<std::unique_ptr<Model>> PlainDecoder::build(ModelConfig config, const WeightSet& weights,
                                                   const ModelContext& context, const PlainOptions& options) {
  std::unique_ptr<PlainDecoder> model(new PlainDecoder(std::move(config), context));
  VN_TRY(model->load(weights, options));
  return std::unique_ptr<Model>(std::move(model));
}

Status PlainDecoder::load(const WeightSet& weights, const PlainOptions& options) {
  WeightLoader from = loader(weights);
  VN_TRY(load_trunk(from));
  std::vector<float> divisors;
  if (from.has("rope_freqs")) {
    VN_ASSIGN(divisors, from.host_vector("rope_freqs"));
  }
  VN_ASSIGN(rope_, build_rope(config().rope, config().head_dim, divisors));
  const auto count = static_cast<std::size_t>(config().num_layers);
  for (std::size_t i = 0; i < count; ++i) {
    VN_ASSIGN(Layer layer, load_layer(from, i, options));
    layers_.push_back(std::move(layer));
  }
  return {};
}

Result<PlainDecoder::Layer> PlainDecoder::load_layer(WeightLoader& loader, std::size_t index,
                                                     const PlainOptions& options) const {
  loader.set_prefix(layer_prefix(index));
  Layer layer;
  VN_ASSIGN(layer.attn_norm, loader.vector("attn_norm"));
  VN_ASSIGN(layer.ffn_norm, loader.vector("ffn_norm"));
  layer.attention = make_attention(config(), static_cast<std::int64_t>(index), rope_);
  VN_TRY(layer.attention.load(loader));
  if (!config().sparse[index]) {
    MlpBlock mlp;
    mlp.activation = options.activation;
    VN_TRY(mlp.load(loader));
    layer.feed_forward = std::move(mlp);
    return layer;
  }
  MoeBlock moe;
  moe.layer = static_cast<std::int32_t>(index);
  moe.top_k = static_cast<std::int32_t>(config().experts_per_token);
  moe.rule = config().normalize_routing ? RoutingRule::kSoftmaxSelected : RoutingRule::kSoftmaxAll;
  moe.activation = options.activation;
  VN_TRY(moe.load(loader));
  layer.feed_forward = std::move(moe);
  return layer;
}

void PlainDecoder::reserve_layers(Workspace& workspace) const {
  for (const Layer& layer : layers_) {
    layer.attention.reserve(workspace);
    std::visit([&](const auto& block) { block.reserve(workspace); }, layer.feed_forward);
  }
}

Status PlainDecoder::run_layer(const Step& step, std::size_t index, MatrixView x) {
  const Layer& layer = layers_[index];
  const BlockInput input = {x, input_norm(step, layer.attn_norm)};
  VN_TRY(layer.attention.run(step, input, step.batch.caches[index].kv, {x, true}));
  if (const auto* moe = std::get_if<MoeBlock>(&layer.feed_forward)) {
    const InputNorm norm = input_norm(step, layer.ffn_norm);
    return moe->run(step, {x, norm}, norm.y, x);
  }
  return std::get<MlpBlock>(layer.feed_forward).run(step, {x, input_norm(step, layer.ffn_norm)}, {x, true});
}

}  // namespace vernier
