// Routed experts beside a dense MLP (Gemma 4): each result is normalised, the sum of both goes on.
#pragma once

#include <span>

#include "model/blocks/moe.h"

namespace vernier {

struct ParallelExpertsBlock {
  float eps = 0.0F;
  MoeBlock moe;
  std::span<const float> router_norm;  ///< [hidden]: the router's scale / sqrt(hidden)
  std::span<const float> input_norm, post_mlp_norm, post_norm;

  /// Reads roles router_scale, experts_norm, post_mlp_norm, post_experts_norm and MoeBlock's.
  [[nodiscard]] Status load(const WeightLoader& loader, std::int64_t hidden_size);
  void reserve(Workspace& workspace, std::int64_t hidden_size) const;
  /// out = norm(out) + norm(experts). `out` holds the dense MLP's result; the router reads `x` itself, not a block's
  /// input. All are [tokens, hidden].
  [[nodiscard]] Status run(const Step& step, MatrixView x, MatrixView out) const;
};

}  // namespace vernier
