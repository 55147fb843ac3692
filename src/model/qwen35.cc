// qwen35 and qwen35moe: Qwen3.5, 3.6 and 3.8. Three layers of four are gated delta nets, the fourth is attention with
// an output gate; the MLP is dense, or experts beside a gated shared one.
#include "model/qwen35.h"

#include <memory>
#include <optional>
#include <variant>

#include "model/architectures.h"
#include "model/blocks/attention.h"
#include "model/blocks/gated_delta_net.h"
#include "model/blocks/mlp.h"
#include "model/blocks/moe.h"
#include "model/common_config.h"
#include "model/decoder.h"
#include "model/rope.h"

namespace vernier {
namespace {

constexpr std::string_view kDenseTypes[] = {"qwen3_5", "qwen3_5_text"};
constexpr std::string_view kDenseNames[] = {"qwen35"};
constexpr std::string_view kSparseTypes[] = {"qwen3_5_moe", "qwen3_5_moe_text"};
constexpr std::string_view kSparseNames[] = {"qwen35moe"};

/// Routed experts, and one that every token passes, weighted by a gate of its own.
struct Experts {
  MoeBlock routed;
  MlpBlock shared;
  Weight shared_gate;  // [1, hidden]
};

struct Layer {
  std::span<const float> attn_norm, ffn_norm;
  std::variant<AttentionBlock, GatedDeltaNetBlock> mixer;
  std::variant<MlpBlock, Experts> feed_forward;
};

class Qwen35Model final : public Decoder {
 public:
  using Decoder::Decoder;
  [[nodiscard]] Status load(const WeightSet& weights);

 private:
  [[nodiscard]] Result<Layer> load_layer(WeightLoader& loader, std::size_t index) const;
  [[nodiscard]] Result<Experts> load_experts(const WeightLoader& loader, std::size_t index) const;
  void reserve_layers(Workspace& workspace) const override;
  [[nodiscard]] Status run_layer(const Step& step, std::size_t index, MatrixView x) override;
  [[nodiscard]] Status run_experts(const Step& step, const Experts& experts, MatrixView input, MatrixView x) const;

  RopeTable rope_;
  std::vector<Layer> layers_;
};

Status Qwen35Model::load(const WeightSet& weights) {
  WeightLoader from = loader(weights);
  VN_TRY(load_trunk(from));
  VN_ASSIGN(rope_, build_rope(config().rope, config().head_dim));
  const auto count = static_cast<std::size_t>(config().num_layers);
  for (std::size_t i = 0; i < count; ++i) {
    VN_ASSIGN(Layer layer, load_layer(from, i));
    layers_.push_back(std::move(layer));
  }
  return {};
}

Result<Layer> Qwen35Model::load_layer(WeightLoader& loader, std::size_t index) const {
  loader.set_prefix(layer_prefix(index));
  Layer layer;
  VN_ASSIGN(layer.attn_norm, loader.vector("attn_norm"));
  VN_ASSIGN(layer.ffn_norm, loader.vector("ffn_norm"));
  if (config().layers[index] == LayerKind::kLinearAttention) {
    GatedDeltaNetBlock net;
    net.shape = config().delta_net;
    net.eps = static_cast<float>(config().norm_eps);
    net.tiled_heads = config().from_gguf;
    VN_TRY(net.load(loader, !config().from_gguf));
    layer.mixer = std::move(net);
  } else {
    AttentionBlock attention = make_attention(config(), static_cast<std::int64_t>(index), rope_);
    attention.gated = true;
    VN_TRY(attention.load(loader));
    layer.mixer = std::move(attention);
  }
  if (config().num_experts > 0) {
    VN_ASSIGN(layer.feed_forward, load_experts(loader, index));
  } else {
    MlpBlock mlp;
    VN_TRY(mlp.load(loader));
    layer.feed_forward = std::move(mlp);
  }
  return layer;
}

Result<Experts> Qwen35Model::load_experts(const WeightLoader& loader, std::size_t index) const {
  Experts experts;
  experts.routed.layer = static_cast<std::int32_t>(index);
  experts.routed.top_k = static_cast<std::int32_t>(config().experts_per_token);
  VN_TRY(experts.routed.load(loader));
  VN_TRY(experts.shared.load(loader, "shared."));
  VN_ASSIGN(experts.shared_gate, loader.matrix("shared.router"));
  return experts;
}

void Qwen35Model::reserve_layers(Workspace& workspace) const {
  workspace.need(Slot::kOutput, config().hidden_size);
  workspace.need(Slot::kSharedGate, 1);
  for (const Layer& layer : layers_) {
    std::visit([&](const auto& block) { block.reserve(workspace); }, layer.mixer);
    if (const auto* experts = std::get_if<Experts>(&layer.feed_forward)) {
      experts->routed.reserve(workspace);
      experts->shared.reserve(workspace);
    } else {
      std::get<MlpBlock>(layer.feed_forward).reserve(workspace);
    }
  }
}

Status Qwen35Model::run_layer(const Step& step, std::size_t index, MatrixView x) {
  const Layer& layer = layers_[index];
  const LayerCache& cache = step.batch.caches[index];
  const MatrixView normed = step.view(Slot::kNormed, x.cols);
  VN_TRY(norm(step, x, layer.attn_norm, normed));
  if (const auto* net = std::get_if<GatedDeltaNetBlock>(&layer.mixer)) {
    VN_TRY(net->run(step, normed, cache, {x, true}));
  } else {
    VN_TRY(std::get<AttentionBlock>(layer.mixer).run(step, normed, cache.kv, {x, true}));
  }
  VN_TRY(norm(step, x, layer.ffn_norm, normed));
  if (const auto* experts = std::get_if<Experts>(&layer.feed_forward)) return run_experts(step, *experts, normed, x);
  return std::get<MlpBlock>(layer.feed_forward).run(step, normed, {x, true});
}

/// x += routed(input) + sigmoid(gate . input) * shared(input).
Status Qwen35Model::run_experts(const Step& step, const Experts& experts, MatrixView input, MatrixView x) const {
  const MatrixView out = step.view(Slot::kOutput, x.cols);
  const MatrixView gate = step.view(Slot::kSharedGate, 1);
  const LinearOutput projection{&experts.shared_gate, {}, gate};
  VN_TRY(step.backend.linear({input, std::span(&projection, 1)}));
  VN_TRY(experts.shared.run(step, input, {out}));
  VN_TRY(step.backend.sigmoid_gate({gate, out}));
  VN_TRY(experts.routed.run(step, input, input, x));
  return step.backend.combine({out, x, 1.0F, 1.0F});
}

// --- the families ----------------------------------------------------------------------------------------------------

Result<std::unique_ptr<Model>> build(ModelConfig config, const WeightSet& weights, const ModelContext& context) {
  auto model = std::make_unique<Qwen35Model>(std::move(config), context);
  VN_TRY(model->load(weights));
  return std::unique_ptr<Model>(std::move(model));
}

Result<ModelConfig> dense_from_hf(const Json& json) { return qwen35::config_from_hf(json, false); }
Result<ModelConfig> sparse_from_hf(const Json& json) { return qwen35::config_from_hf(json, true); }
Result<ModelConfig> dense_from_gguf(const Json& keys) { return qwen35::config_from_gguf(keys, false); }
Result<ModelConfig> sparse_from_gguf(const Json& keys) { return qwen35::config_from_gguf(keys, true); }

}  // namespace

Architecture qwen35_architecture() {
  return {"qwen35",        kDenseTypes,     kDenseNames, dense_from_hf, dense_from_gguf,
          qwen35::tensors, qwen35::ignored, build,       qwen35::caches};
}

Architecture qwen35moe_architecture() {
  return {"qwen35moe",     kSparseTypes,    kSparseNames, sparse_from_hf, sparse_from_gguf,
          qwen35::tensors, qwen35::ignored, build,        qwen35::caches};
}

}  // namespace vernier
