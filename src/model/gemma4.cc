// gemma4: Gemma 4, dense, mixture of experts, and with per-layer embeddings. Norms before and after each block, full
// layers between sliding ones, and a scale on the output of every layer.
#include "model/gemma4.h"

#include <cmath>
#include <memory>
#include <optional>

#include "model/architectures.h"
#include "model/blocks/attention.h"
#include "model/blocks/mlp.h"
#include "model/blocks/moe.h"
#include "model/common_config.h"
#include "model/decoder.h"
#include "model/rope.h"

namespace vernier {
namespace {

constexpr std::string_view kHfTypes[] = {"gemma4", "gemma4_text", "gemma4_unified", "gemma4_unified_text"};
constexpr std::string_view kGgufNames[] = {"gemma4"};
constexpr ActivationSpec kActivation{.kind = Activation::kGeluTanh};

/// Experts beside the dense MLP.
struct Experts {
  std::span<const float> router_norm;  // router.scale / sqrt(hidden)
  std::span<const float> input_norm, post_mlp_norm, post_norm;
  MoeBlock moe;
};

/// Per-layer embeddings: a gate over the layer's slice of them.
struct PerLayer {
  Weight gate, out;
  std::span<const float> norm;
};

struct Layer {
  std::span<const float> attn_norm, post_attn_norm, ffn_norm, post_ffn_norm;
  AttentionBlock attention;
  std::size_t kv_layer = 0;  // whose cache is read
  MlpBlock mlp;
  std::optional<Experts> experts;
  std::optional<PerLayer> per_layer;
  float scale = 1.0F;
};

class Gemma4Model final : public Decoder {
 public:
  using Decoder::Decoder;
  [[nodiscard]] Status load(const WeightSet& weights);

 private:
  [[nodiscard]] Status load_per_layer_embedding(WeightLoader& loader);
  [[nodiscard]] Result<Layer> load_layer(WeightLoader& loader, std::size_t index) const;
  [[nodiscard]] Result<AttentionBlock> load_attention(const WeightLoader& loader, std::int64_t index) const;
  [[nodiscard]] Result<Experts> load_experts(const WeightLoader& loader, std::size_t index) const;
  [[nodiscard]] std::size_t kv_layer(std::size_t index) const;
  void reserve_layers(Workspace& workspace) const override;
  [[nodiscard]] Status prepare(const Step& step, MatrixView x) override;
  [[nodiscard]] Status run_layer(const Step& step, std::size_t layer, MatrixView x) override;
  [[nodiscard]] Status run_experts(const Step& step, const Experts& experts, MatrixView x, MatrixView out) const;
  [[nodiscard]] Status run_per_layer(const Step& step, const PerLayer& block, std::size_t layer, MatrixView x) const;
  /// x += norm(out).
  [[nodiscard]] Status add_normed(const Step& step, MatrixView out, std::span<const float> weight, MatrixView x) const;
  [[nodiscard]] std::int64_t per_layer_cols() const { return config().gemma4.per_layer_width * config().num_layers; }

  RopeTable sliding_rope_, full_rope_;
  std::vector<Layer> layers_;
  Weight per_layer_embedding_, per_layer_projection_;
  std::span<const float> per_layer_norm_;
};

// --- loading ---------------------------------------------------------------------------------------------------------

Status Gemma4Model::load(const WeightSet& weights) {
  WeightLoader from = loader(weights);
  VN_TRY(load_trunk(from, static_cast<float>(std::sqrt(static_cast<double>(config().hidden_size)))));
  if (config().gemma4.per_layer_width > 0) VN_TRY(load_per_layer_embedding(from));
  std::vector<float> divisors;
  if (from.has("rope_freqs")) {
    VN_ASSIGN(divisors, from.host_vector("rope_freqs"));
  }
  VN_ASSIGN(sliding_rope_, build_rope(config().rope, config().head_dim));
  VN_ASSIGN(full_rope_, build_rope(config().gemma4.full_rope, config().gemma4.full_head_dim, divisors));
  const auto count = static_cast<std::size_t>(config().num_layers);
  for (std::size_t i = 0; i < count; ++i) {
    VN_ASSIGN(Layer layer, load_layer(from, i));
    layers_.push_back(std::move(layer));
  }
  return {};
}

Status Gemma4Model::load_per_layer_embedding(WeightLoader& loader) {
  VN_ASSIGN(per_layer_embedding_, loader.matrix("ple.embed"));
  VN_ASSIGN(per_layer_projection_, loader.matrix("ple.model"));
  VN_ASSIGN(per_layer_norm_, loader.vector("ple.model_norm"));
  return {};
}

std::size_t Gemma4Model::kv_layer(std::size_t index) const {
  if (!gemma4::shares_kv(config(), static_cast<std::int64_t>(index))) return index;
  auto owner = static_cast<std::size_t>(config().num_layers - config().gemma4.shared_kv_layers) - 1;
  while (config().layers[owner] != config().layers[index]) --owner;  // the configuration was checked to have one
  return owner;
}

Result<AttentionBlock> Gemma4Model::load_attention(const WeightLoader& loader, std::int64_t index) const {
  const bool full = gemma4::is_full(config(), index);
  AttentionBlock block = make_attention(config(), index, full ? full_rope_ : sliding_rope_);
  block.num_kv_heads = static_cast<std::int32_t>(gemma4::kv_heads(config(), index));
  block.head_dim = static_cast<std::int32_t>(gemma4::head_dim(config(), index));
  block.scale = 1.0F;  // the head norms have made scores small enough
  block.normalize_v = true;
  block.owns_kv = !gemma4::shares_kv(config(), index);
  VN_TRY(block.load(loader));
  return block;
}

Result<Experts> Gemma4Model::load_experts(const WeightLoader& loader, std::size_t index) const {
  Experts experts;
  VN_ASSIGN(std::vector<float> scale, loader.host_vector("router_scale"));
  const double root = std::sqrt(static_cast<double>(config().hidden_size));
  for (float& value : scale) value = static_cast<float>(value / root);
  VN_ASSIGN(experts.router_norm, loader.place(scale));
  VN_ASSIGN(experts.input_norm, loader.vector("experts_norm"));
  VN_ASSIGN(experts.post_mlp_norm, loader.vector("post_mlp_norm"));
  VN_ASSIGN(experts.post_norm, loader.vector("post_experts_norm"));
  experts.moe.layer = static_cast<std::int32_t>(index);
  experts.moe.top_k = static_cast<std::int32_t>(config().experts_per_token);
  experts.moe.activation = kActivation;
  VN_TRY(experts.moe.load(loader));
  return experts;
}

Result<Layer> Gemma4Model::load_layer(WeightLoader& loader, std::size_t index) const {
  loader.set_prefix(layer_prefix(index));
  Layer layer;
  VN_ASSIGN(layer.attn_norm, loader.vector("attn_norm"));
  VN_ASSIGN(layer.post_attn_norm, loader.vector("post_attn_norm"));
  VN_ASSIGN(layer.ffn_norm, loader.vector("ffn_norm"));
  VN_ASSIGN(layer.post_ffn_norm, loader.vector("post_ffn_norm"));
  VN_ASSIGN(const std::vector<float> scale, loader.host_vector("layer_scale"));
  layer.scale = scale.front();
  layer.kv_layer = kv_layer(index);
  VN_ASSIGN(layer.attention, load_attention(loader, static_cast<std::int64_t>(index)));
  layer.mlp.activation = kActivation;
  VN_TRY(layer.mlp.load(loader));
  if (config().num_experts > 0) {
    VN_ASSIGN(layer.experts, load_experts(loader, index));
  }
  if (config().gemma4.per_layer_width > 0) {
    PerLayer block;
    VN_ASSIGN(block.gate, loader.matrix("ple.gate"));
    VN_ASSIGN(block.out, loader.matrix("ple.out"));
    VN_ASSIGN(block.norm, loader.vector("ple.norm"));
    layer.per_layer = std::move(block);
  }
  return layer;
}

void Gemma4Model::reserve_layers(Workspace& workspace) const {
  for (const Slot slot : {Slot::kOutput, Slot::kRouterInput}) workspace.need(slot, config().hidden_size);
  for (const Layer& layer : layers_) {
    layer.attention.reserve(workspace);
    layer.mlp.reserve(workspace);
    if (layer.experts) {
      layer.experts->moe.reserve(workspace);
      workspace.need(Slot::kMixed, config().hidden_size);
    }
    if (layer.per_layer) workspace.need(Slot::kGate, layer.per_layer->gate.rows);
  }
  for (const Slot slot : {Slot::kPerLayer, Slot::kPerLayerContext}) workspace.need(slot, per_layer_cols());
}

// --- forward ---------------------------------------------------------------------------------------------------------

/// The per-layer inputs of all layers: (norm(projection of x) + embedding) / sqrt(2), [tokens, layers * width].
Status Gemma4Model::prepare(const Step& step, MatrixView x) {
  const std::int64_t width = config().gemma4.per_layer_width;
  if (width == 0) return {};
  const MatrixView inputs = step.view(Slot::kPerLayer, per_layer_cols());
  const MatrixView context = step.view(Slot::kPerLayerContext, per_layer_cols());
  const auto multiplier = static_cast<float>(std::sqrt(static_cast<double>(width)));
  VN_TRY(step.backend.embed({step.batch.tokens, &per_layer_embedding_, multiplier, inputs}));
  const LinearOutput projection{&per_layer_projection_, {}, context};
  VN_TRY(step.backend.linear({x, std::span(&projection, 1)}));
  const auto scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(config().hidden_size)));
  VN_TRY(step.backend.combine({context, context, scale, 0.0F}));
  const MatrixView slices{context.data, context.rows * config().num_layers, width, width};
  VN_TRY(norm(step, slices, per_layer_norm_, slices));
  constexpr float kHalfRoot = 0.70710678F;
  return step.backend.combine({context, inputs, kHalfRoot, kHalfRoot});
}

Status Gemma4Model::add_normed(const Step& step, MatrixView out, std::span<const float> weight, MatrixView x) const {
  VN_TRY(norm(step, out, weight, out));
  return step.backend.combine({out, x, 1.0F, 1.0F});
}

Status Gemma4Model::run_layer(const Step& step, std::size_t index, MatrixView x) {
  const Layer& layer = layers_[index];
  const MatrixView normed = step.view(Slot::kNormed, x.cols);
  const MatrixView out = step.view(Slot::kOutput, x.cols);
  VN_TRY(norm(step, x, layer.attn_norm, normed));
  VN_TRY(layer.attention.run(step, normed, step.batch.caches[layer.kv_layer].kv, {out}));
  VN_TRY(add_normed(step, out, layer.post_attn_norm, x));

  VN_TRY(norm(step, x, layer.ffn_norm, normed));
  VN_TRY(layer.mlp.run(step, normed, {out}));
  if (layer.experts) VN_TRY(run_experts(step, *layer.experts, x, out));
  VN_TRY(add_normed(step, out, layer.post_ffn_norm, x));

  if (layer.per_layer) VN_TRY(run_per_layer(step, *layer.per_layer, index, x));
  return layer.scale == 1.0F ? Status() : step.backend.combine({x, x, layer.scale, 0.0F});
}

/// out = norm(out) + norm(experts), where out is the dense MLP's result. The router reads x itself, not a block's
/// input.
Status Gemma4Model::run_experts(const Step& step, const Experts& experts, MatrixView x, MatrixView out) const {
  const MatrixView router_input = step.view(Slot::kRouterInput, x.cols);
  const MatrixView input = step.view(Slot::kNormed, x.cols);
  VN_TRY(norm(step, out, experts.post_mlp_norm, out));
  VN_TRY(norm(step, x, experts.router_norm, router_input));
  VN_TRY(norm(step, x, experts.input_norm, input));
  const MatrixView sum = step.view(Slot::kMixed, x.cols);
  VN_TRY(step.backend.combine({input, sum, 0.0F, 0.0F}));
  VN_TRY(experts.moe.run(step, router_input, input, sum));
  return add_normed(step, sum, experts.post_norm, out);
}

Status Gemma4Model::run_per_layer(const Step& step, const PerLayer& block, std::size_t layer, MatrixView x) const {
  const std::int64_t width = block.gate.rows;
  const MatrixView inputs = step.view(Slot::kPerLayer, per_layer_cols());
  const MatrixView own = inputs.slice_cols(static_cast<std::int64_t>(layer) * width, width);
  const MatrixView gate = step.view(Slot::kGate, width);
  const MatrixView out = step.view(Slot::kOutput, x.cols);
  const LinearOutput first{&block.gate, {}, gate};
  VN_TRY(step.backend.linear({x, std::span(&first, 1)}));
  VN_TRY(step.backend.gated_activation({kActivation, gate, own, gate}));
  const LinearOutput last{&block.out, {}, out};
  VN_TRY(step.backend.linear({gate, std::span(&last, 1)}));
  return add_normed(step, out, block.norm, x);
}

// --- the family ------------------------------------------------------------------------------------------------------

Result<std::unique_ptr<Model>> build(ModelConfig config, const WeightSet& weights, const ModelContext& context) {
  auto model = std::make_unique<Gemma4Model>(std::move(config), context);
  VN_TRY(model->load(weights));
  return std::unique_ptr<Model>(std::move(model));
}

CacheShapes caches(const ModelConfig& config) {
  CacheShapes shapes = uniform_caches(config);
  for (std::int64_t i = 0; i < config.num_layers; ++i) {
    shapes.kv[static_cast<std::size_t>(i)] = gemma4::shares_kv(config, i)
                                                 ? KvShape{}
                                                 : KvShape{static_cast<std::int32_t>(gemma4::kv_heads(config, i)),
                                                           static_cast<std::int32_t>(gemma4::head_dim(config, i))};
  }
  return shapes;
}

}  // namespace

Architecture gemma4_architecture() {
  return {"gemma4",        kHfTypes, kGgufNames, gemma4::config_from_hf, gemma4::config_from_gguf, gemma4::tensors,
          gemma4::ignored, build,    caches};
}

}  // namespace vernier
