// Per-layer embeddings (Gemma 4): every layer gets a small input of its own, made once a step from the tokens and the
// embedded residual stream.
#pragma once

#include <cstdint>
#include <span>

#include "model/blocks/step.h"
#include "model/weight_loader.h"

namespace vernier {

/// What the model does once a step.
struct PerLayerInputs {
  std::int64_t num_layers = 0;
  std::int64_t width = 0;  ///< of one layer's input; 0: the model has none
  float eps = 0.0F;
  Weight embedding, projection;
  std::span<const float> norm;

  /// Reads roles ple.embed, ple.model, ple.model_norm.
  [[nodiscard]] Status load(const WeightLoader& loader);
  void reserve(Workspace& workspace) const;
  /// Fills Slot::kPerLayer [tokens, num_layers * width] with (norm(projection of x) + embedding) / sqrt(2).
  [[nodiscard]] Status run(const Step& step, MatrixView x) const;
  /// The part of Slot::kPerLayer that belongs to `layer`, [tokens, width].
  [[nodiscard]] MatrixView input_of(const Step& step, std::size_t layer) const;
};

/// What one layer does with its input: a gate over it, projected back.
struct PerLayerBlock {
  float eps = 0.0F;
  ActivationSpec activation;
  Weight gate, out;
  std::span<const float> norm;

  /// Reads roles ple.gate, ple.out, ple.norm.
  [[nodiscard]] Status load(const WeightLoader& loader);
  void reserve(Workspace& workspace) const { workspace.need(Slot::kGate, gate.rows); }
  /// x += norm(out(act(gate(x)) * input)). `x` is [tokens, hidden], `input` [tokens, width].
  [[nodiscard]] Status run(const Step& step, MatrixView input, MatrixView x) const;
};

}  // namespace vernier
