// gemma4: Gemma 4, dense, mixture of experts, and with per-layer embeddings. Norms before and after each block, full
// layers between sliding ones, and a scale on the output of every layer.
#include "model/gemma4.h"

#include <cmath>
#include <memory>
#include <optional>

#include "model/architectures.h"
#include "model/blocks/attention.h"
#include "model/blocks/mlp.h"
#include "model/blocks/parallel_experts.h"
#include "model/blocks/per_layer_embedding.h"
#include "model/common_config.h"
#include "model/decoder.h"
#include "model/rope.h"

namespace vernier {
namespace {

constexpr std::string_view kHfTypes[] = {"gemma4", "gemma4_text", "gemma4_unified", "gemma4_unified_text"};
constexpr std::string_view kGgufNames[] = {"gemma4"};
constexpr ActivationSpec kActivation{.kind = Activation::kGeluTanh};

struct Layer {
  std::span<const float> attn_norm, post_attn_norm, ffn_norm, post_ffn_norm;
  AttentionBlock attention;
  std::size_t kv_layer = 0;  // whose cache is read
  MlpBlock mlp;
  std::optional<ParallelExpertsBlock> experts;
  std::optional<PerLayerBlock> per_layer;
  float scale = 1.0F;
};

class Gemma4Model final : public Decoder {
 public:
  using Decoder::Decoder;
  [[nodiscard]] Status load(const WeightSet& weights);

 private:
  [[nodiscard]] Result<Layer> load_layer(WeightLoader& loader, std::size_t index) const;
  [[nodiscard]] Result<AttentionBlock> load_attention(const WeightLoader& loader, std::int64_t index) const;
  [[nodiscard]] Result<ParallelExpertsBlock> load_experts(const WeightLoader& loader, std::size_t index) const;
  void reserve_layers(Workspace& workspace) const override;
  [[nodiscard]] Status prepare(const Step& step, MatrixView x) override;
  [[nodiscard]] Status run_layer(const Step& step, std::size_t layer, MatrixView x) override;
  /// x += norm(out).
  [[nodiscard]] Status add_normed(const Step& step, MatrixView out, std::span<const float> weight, MatrixView x) const;
  [[nodiscard]] float eps() const { return static_cast<float>(config().norm_eps); }

  RopeTable sliding_rope_, full_rope_;
  std::vector<Layer> layers_;
  PerLayerInputs per_layer_;
};

// --- loading ---------------------------------------------------------------------------------------------------------

Status Gemma4Model::load(const WeightSet& weights) {
  WeightLoader from = loader(weights);
  VN_TRY(load_trunk(from, static_cast<float>(std::sqrt(static_cast<double>(config().hidden_size)))));
  per_layer_.num_layers = config().num_layers;
  per_layer_.width = config().gemma4.per_layer_width;
  per_layer_.eps = eps();
  if (per_layer_.width > 0) VN_TRY(per_layer_.load(from));
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

Result<ParallelExpertsBlock> Gemma4Model::load_experts(const WeightLoader& loader, std::size_t index) const {
  ParallelExpertsBlock experts;
  experts.eps = eps();
  experts.moe.layer = static_cast<std::int32_t>(index);
  experts.moe.top_k = static_cast<std::int32_t>(config().experts_per_token);
  experts.moe.activation = kActivation;
  VN_TRY(experts.load(loader, config().hidden_size));
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
  layer.kv_layer = gemma4::kv_layer(config(), index);
  VN_ASSIGN(layer.attention, load_attention(loader, static_cast<std::int64_t>(index)));
  layer.mlp.activation = kActivation;
  VN_TRY(layer.mlp.load(loader));
  if (config().num_experts > 0) {
    VN_ASSIGN(layer.experts, load_experts(loader, index));
  }
  if (config().gemma4.per_layer_width > 0) {
    PerLayerBlock block;
    block.eps = eps();
    block.activation = kActivation;
    VN_TRY(block.load(loader));
    layer.per_layer = std::move(block);
  }
  return layer;
}

void Gemma4Model::reserve_layers(Workspace& workspace) const {
  workspace.need(Slot::kOutput, config().hidden_size);
  for (const Layer& layer : layers_) {
    layer.attention.reserve(workspace);
    layer.mlp.reserve(workspace);
    if (layer.experts) layer.experts->reserve(workspace, config().hidden_size);
    if (layer.per_layer) layer.per_layer->reserve(workspace);
  }
  per_layer_.reserve(workspace);
}

// --- forward ---------------------------------------------------------------------------------------------------------

Status Gemma4Model::prepare(const Step& step, MatrixView x) {
  return per_layer_.width > 0 ? per_layer_.run(step, x) : Status();
}

Status Gemma4Model::add_normed(const Step& step, MatrixView out, std::span<const float> weight, MatrixView x) const {
  VN_TRY(norm(step, out, weight, out));
  return step.backend.combine({out, x, 1.0F, 1.0F});
}

Status Gemma4Model::run_layer(const Step& step, std::size_t index, MatrixView x) {
  const Layer& layer = layers_[index];
  const MatrixView out = step.view(Slot::kOutput, x.cols);
  VN_TRY(
      layer.attention.run(step, {x, input_norm(step, layer.attn_norm)}, step.batch.caches[layer.kv_layer].kv, {out}));
  VN_TRY(add_normed(step, out, layer.post_attn_norm, x));
  VN_TRY(layer.mlp.run(step, {x, input_norm(step, layer.ffn_norm)}, {out}));
  if (layer.experts) VN_TRY(layer.experts->run(step, x, out));
  VN_TRY(add_normed(step, out, layer.post_ffn_norm, x));

  if (layer.per_layer) VN_TRY(layer.per_layer->run(step, per_layer_.input_of(step, index), x));
  return layer.scale == 1.0F ? Status() : step.backend.combine({x, x, layer.scale, 0.0F});
}

// --- the family ------------------------------------------------------------------------------------------------------

Result<std::unique_ptr<Model>> build(ModelConfig config, const WeightSet& weights, const ModelContext& context) {
  auto model = std::make_unique<Gemma4Model>(std::move(config), context);
  VN_TRY(model->load(weights));
  return std::unique_ptr<Model>(std::move(model));
}

}  // namespace

Architecture gemma4_architecture() {
  return {"gemma4",        kHfTypes,        kGgufNames, gemma4::config_from_hf, gemma4::config_from_gguf,
          gemma4::tensors, gemma4::ignored, build,      gemma4::caches};
}

}  // namespace vernier
