// Routed experts: choose a few of many MLPs for each token and add their weighted outputs.
#pragma once

#include <cstdint>
#include <span>

#include "model/blocks/step.h"
#include "model/weight_loader.h"

namespace vernier {

struct MoeBlock {
  std::int32_t layer = 0;  ///< identifies the bank to the executor
  std::int32_t top_k = 0;
  RoutingRule rule = RoutingRule::kSoftmaxSelected;
  ActivationSpec activation;
  Weight router;
  std::span<const float> router_bias;   ///< [experts] or empty
  std::span<const float> expert_scale;  ///< [experts] or empty
  ExpertWeights experts;

  /// Tells the executor of the bank, so layer and top_k must be set. Reads roles router, router_bias, expert_scale,
  /// experts.gate, .up, .down and their biases.
  [[nodiscard]] Status load(const WeightLoader& loader);
  void reserve(Workspace& workspace) const;
  /// Adds to `y` [tokens, hidden]. The router's input and `input` are [tokens, hidden]; most families pass as `input`
  /// what the router's norm leaves.
  [[nodiscard]] Status run(const Step& step, const BlockInput& router_input, MatrixView input, MatrixView y) const;
  /// The two halves of run(), for families that have something to do between them.
  [[nodiscard]] Status route(const Step& step, const BlockInput& input) const;
  [[nodiscard]] Status multiply(const Step& step, MatrixView input, MatrixView y) const;
};

}  // namespace vernier
