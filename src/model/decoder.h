// What all decoders have in common: embedding, a run over layers, final norm, head. Families add their layers.
#pragma once

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "model/blocks/step.h"
#include "model/model.h"
#include "model/weight_loader.h"
#include "model/workspace.h"

namespace vernier {

class Decoder : public Model {
 public:
  Decoder(ModelConfig config, const ModelContext& context)
      : config_(std::move(config)), backend_(*context.backend), experts_(*context.experts) {}

  [[nodiscard]] const ModelConfig& config() const final { return config_; }
  [[nodiscard]] Status reserve(std::int32_t max_tokens, std::int32_t max_outputs) final;
  [[nodiscard]] std::uint64_t reserved_bytes() const final { return workspace_.size_bytes(); }
  [[nodiscard]] Status forward(const StepBatch& batch, MatrixView logits) final;

 protected:
  /// Loads embedding, final norm and head. `embedding_multiplier` scales embeddings.
  [[nodiscard]] Status load_trunk(WeightLoader& loader, float embedding_multiplier = 1.0F);
  /// Asks the workspace for what the family's layers need.
  virtual void reserve_layers(Workspace& workspace) const = 0;
  /// Called once a step, after the embedding and before the layers.
  [[nodiscard]] virtual Status prepare(const Step& /*step*/, MatrixView /*x*/) { return {}; }
  /// Runs layer `layer` on the residual stream `x` [tokens, hidden].
  [[nodiscard]] virtual Status run_layer(const Step& step, std::size_t layer, MatrixView x) = 0;

  /// y = norm(x) with the model's epsilon.
  [[nodiscard]] Status norm(const Step& step, MatrixView x, std::span<const float> weight, MatrixView y) const;
  /// The same as part of the operation that reads it.
  [[nodiscard]] InputNorm input_norm(const Step& step, std::span<const float> weight) const;
  [[nodiscard]] WeightLoader loader(const WeightSet& weights) { return {backend_, experts_, weights, vectors_}; }
  /// logits = head(norm(the output rows of x)), soft-capped where the family does.
  [[nodiscard]] Status compute_logits(const Step& step, MatrixView x, std::span<const float> weight,
                                      MatrixView logits) const;
  [[nodiscard]] const Weight& embedding() const { return embedding_; }
  [[nodiscard]] Step step_of(const StepBatch& batch) const { return {backend_, experts_, workspace_, batch}; }
  [[nodiscard]] Status check(const StepBatch& batch, MatrixView logits) const;

 private:
  ModelConfig config_;
  Backend& backend_;
  ExpertExecutor& experts_;
  VectorStore vectors_;
  Workspace workspace_;
  Weight embedding_;
  Weight head_;
  std::span<const float> norm_;
  float embedding_multiplier_ = 1.0F;
};

/// The loader prefix of a layer: "layers.3.".
[[nodiscard]] std::string layer_prefix(std::size_t layer);

}  // namespace vernier
