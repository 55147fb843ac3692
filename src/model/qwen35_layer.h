// One layer of qwen35 and qwen35moe, also that of the multi-token prediction block: a mixer (attention or gated delta
// net) and a feed-forward part (dense, or experts beside a gated shared one).
#pragma once

#include <cstdint>
#include <span>
#include <variant>

#include "model/blocks/attention.h"
#include "model/blocks/gated_delta_net.h"
#include "model/blocks/mlp.h"
#include "model/blocks/moe.h"

namespace vernier::qwen35 {

/// Routed experts, and one that every token passes, weighted by a gate of its own.
struct Experts {
  MoeBlock routed;
  MlpBlock shared;
  Weight shared_gate;  ///< [1, hidden]

  [[nodiscard]] Status load(const WeightLoader& loader);
  void reserve(Workspace& workspace) const;
  /// x += routed(input) + sigmoid(gate . input) * shared(input), where norm of x makes the input.
  [[nodiscard]] Status run(const Step& step, const InputNorm& norm, MatrixView x) const;
};

struct Layer {
  float eps = 0.0F;
  std::span<const float> attn_norm, ffn_norm;
  std::variant<AttentionBlock, GatedDeltaNetBlock> mixer;
  std::variant<MlpBlock, Experts> feed_forward;

  /// Reads the layer that the loader stands at. `index` identifies its experts; `rope` outlives the layer.
  [[nodiscard]] Status load(const WeightLoader& loader, const ModelConfig& config, std::int64_t index, bool recurrent,
                            const RopeTable& rope);
  void reserve(Workspace& workspace, std::int64_t hidden_size) const;
  /// x is the residual stream [tokens, hidden].
  [[nodiscard]] Status run(const Step& step, const LayerCache& cache, MatrixView x) const;
};

}  // namespace vernier::qwen35
