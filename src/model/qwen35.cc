// qwen35 and qwen35moe: Qwen3.5, 3.6 and 3.8. Three layers of four are gated delta nets, the fourth is attention with
// an output gate; the MLP is dense, or experts beside a gated shared one.
#include "model/qwen35.h"

#include <memory>
#include <optional>

#include "model/architectures.h"
#include "model/common_config.h"
#include "model/decoder.h"
#include "model/qwen35_layer.h"
#include "model/rope.h"

namespace vernier {
namespace {

constexpr std::string_view kDenseTypes[] = {"qwen3_5", "qwen3_5_text"};
constexpr std::string_view kDenseNames[] = {"qwen35"};
constexpr std::string_view kSparseTypes[] = {"qwen3_5_moe", "qwen3_5_moe_text"};
constexpr std::string_view kSparseNames[] = {"qwen35moe"};

/// Multi-token prediction: a layer over the state of one token and the embedding of the next.
struct DraftBlock {
  Weight fc;  // [hidden, 2 * hidden], embedding first
  std::span<const float> embed_norm, hidden_norm, norm;
  qwen35::Layer layer;
};

class Qwen35Model final : public Decoder {
 public:
  using Decoder::Decoder;
  [[nodiscard]] Status load(const WeightSet& weights);
  [[nodiscard]] bool can_draft() const override { return draft_.has_value(); }
  [[nodiscard]] Status draft(const StepBatch& batch, MatrixView logits) override;

 private:
  [[nodiscard]] Status load_draft(WeightLoader& loader);
  void reserve_layers(Workspace& workspace) const override;
  [[nodiscard]] Status run_layer(const Step& step, std::size_t index, MatrixView x) override {
    return layers_[index].run(step, step.batch.caches[index], x);
  }

  RopeTable rope_;
  std::vector<qwen35::Layer> layers_;
  std::optional<DraftBlock> draft_;
};

Status Qwen35Model::load(const WeightSet& weights) {
  WeightLoader from = loader(weights);
  VN_TRY(load_trunk(from));
  VN_ASSIGN(rope_, build_rope(config().rope, config().head_dim));
  layers_.resize(static_cast<std::size_t>(config().num_layers));
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    from.set_prefix(layer_prefix(i));
    const bool recurrent = config().layers[i] == LayerKind::kLinearAttention;
    VN_TRY(layers_[i].load(from, config(), static_cast<std::int64_t>(i), recurrent, rope_));
  }
  from.set_prefix("mtp.");
  return config().mtp_layers > 0 && from.has("fc") ? load_draft(from) : Status();
}

Status Qwen35Model::load_draft(WeightLoader& loader) {
  DraftBlock block;
  VN_ASSIGN(block.fc, loader.matrix("fc"));
  VN_ASSIGN(block.norm, loader.vector("norm"));
  VN_ASSIGN(block.embed_norm, loader.vector("embed_norm"));
  VN_ASSIGN(block.hidden_norm, loader.vector("hidden_norm"));
  VN_TRY(block.layer.load(loader, config(), config().num_layers, false, rope_));
  draft_ = std::move(block);
  return {};
}

void Qwen35Model::reserve_layers(Workspace& workspace) const {
  for (const qwen35::Layer& layer : layers_) layer.reserve(workspace, config().hidden_size);
  if (!draft_) return;
  draft_->layer.reserve(workspace, config().hidden_size);
  workspace.need(Slot::kDraftInput, 2 * config().hidden_size);
}

Status Qwen35Model::draft(const StepBatch& batch, MatrixView logits) {
  if (!draft_) return Decoder::draft(batch, logits);
  VN_TRY(check(batch, logits));
  if (batch.tokens.empty()) return {};
  const Step step = step_of(batch);
  const std::int64_t width = config().hidden_size;
  const MatrixView both = step.view(Slot::kDraftInput, 2 * width);
  const MatrixView token = both.slice_cols(0, width);
  VN_TRY(step.backend.embed({batch.tokens, &embedding(), 1.0F, token}));
  VN_TRY(norm(step, token, draft_->embed_norm, token));
  VN_TRY(norm(step, batch.hidden, draft_->hidden_norm, both.slice_cols(width, width)));
  const MatrixView x = step.view(Slot::kResidual, width);
  const LinearOutput projection{&draft_->fc, {}, x};
  VN_TRY(step.backend.linear({both, std::span(&projection, 1)}));
  VN_TRY(draft_->layer.run(step, batch.caches.back(), x));
  return compute_logits(step, x, draft_->norm, logits);
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
