// The decoder of llama and its many descendants: x += attention(norm(x)); x += feed_forward(norm(x)).
#pragma once

#include <memory>
#include <span>
#include <variant>
#include <vector>

#include "model/blocks/attention.h"
#include "model/blocks/mlp.h"
#include "model/blocks/moe.h"
#include "model/decoder.h"

namespace vernier {

/// What a family may choose within the plain form; the rest follows from its configuration and tensors.
struct PlainOptions {
  ActivationSpec activation;
};

class PlainDecoder final : public Decoder {
 public:
  [[nodiscard]] static Result<std::unique_ptr<Model>> build(ModelConfig config, const WeightSet& weights,
                                                            const ModelContext& context,
                                                            const PlainOptions& options = {});

 private:
  struct Layer {
    std::span<const float> attn_norm;
    AttentionBlock attention;
    std::span<const float> ffn_norm;
    std::variant<MlpBlock, MoeBlock> feed_forward;
  };

  using Decoder::Decoder;
  [[nodiscard]] Status load(const WeightSet& weights, const PlainOptions& options);
  [[nodiscard]] Result<Layer> load_layer(WeightLoader& loader, std::size_t index, const PlainOptions& options) const;
  void reserve_layers(Workspace& workspace) const override;
  [[nodiscard]] Status run_layer(const Step& step, std::size_t layer, MatrixView x) override;

  RopeTable rope_;
  std::vector<Layer> layers_;
};

}  // namespace vernier
