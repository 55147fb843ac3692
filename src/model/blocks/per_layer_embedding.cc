#include "model/blocks/per_layer_embedding.h"

#include <cmath>

namespace vernier {

Status PerLayerInputs::load(const WeightLoader& loader) {
  VN_ASSIGN(embedding, loader.matrix("ple.embed"));
  VN_ASSIGN(projection, loader.matrix("ple.model"));
  VN_ASSIGN(norm, loader.vector("ple.model_norm"));
  return {};
}

void PerLayerInputs::reserve(Workspace& workspace) const {
  for (const Slot slot : {Slot::kPerLayer, Slot::kPerLayerContext}) workspace.need(slot, num_layers * width);
}

MatrixView PerLayerInputs::input_of(const Step& step, std::size_t layer) const {
  return step.view(Slot::kPerLayer, num_layers * width).slice_cols(static_cast<std::int64_t>(layer) * width, width);
}

Status PerLayerInputs::run(const Step& step, MatrixView x) const {
  const MatrixView inputs = step.view(Slot::kPerLayer, num_layers * width);
  const MatrixView context = step.view(Slot::kPerLayerContext, num_layers * width);
  const auto multiplier = static_cast<float>(std::sqrt(static_cast<double>(width)));
  VN_TRY(step.backend.embed({step.batch.tokens, &embedding, multiplier, inputs}));
  const LinearOutput projected{&projection, {}, context};
  VN_TRY(step.backend.linear({x, std::span(&projected, 1)}));
  const auto scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(x.cols)));
  VN_TRY(step.backend.combine({context, context, scale, 0.0F}));
  const MatrixView slices{context.data, context.rows * num_layers, width, width};
  VN_TRY(step.backend.rms_norm({.x = slices, .weight = norm, .eps = eps, .y = slices}));
  constexpr float kHalfRoot = 0.70710678F;
  return step.backend.combine({context, inputs, kHalfRoot, kHalfRoot});
}

Status PerLayerBlock::load(const WeightLoader& loader) {
  VN_ASSIGN(gate, loader.matrix("ple.gate"));
  VN_ASSIGN(out, loader.matrix("ple.out"));
  VN_ASSIGN(norm, loader.vector("ple.norm"));
  return {};
}

Status PerLayerBlock::run(const Step& step, MatrixView input, MatrixView x) const {
  const MatrixView gated = step.view(Slot::kGate, gate.rows);
  const MatrixView output = step.view(Slot::kOutput, x.cols);
  const LinearOutput first{&gate, {}, gated};
  VN_TRY(step.backend.linear({x, std::span(&first, 1)}));
  VN_TRY(step.backend.gated_activation({activation, gated, input, gated}));
  const LinearOutput last{&out, {}, output};
  VN_TRY(step.backend.linear({gated, std::span(&last, 1)}));
  VN_TRY(step.backend.rms_norm({.x = output, .weight = norm, .eps = eps, .y = output}));
  return step.backend.combine({output, x, 1.0F, 1.0F});
}

}  // namespace vernier
