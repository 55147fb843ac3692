#include "model/blocks/gated_delta_net.h"

#include <array>
#include <cmath>
#include <vector>

namespace vernier {

Status GatedDeltaNetBlock::load(const WeightLoader& loader, bool decay_is_log) {
  VN_ASSIGN(qkv, loader.matrix("delta.qkv"));
  VN_ASSIGN(z, loader.matrix("delta.z"));
  VN_ASSIGN(a, loader.matrix("delta.a"));
  VN_ASSIGN(b, loader.matrix("delta.b"));
  VN_ASSIGN(out, loader.matrix("delta.out"));
  VN_ASSIGN(convolution, loader.vector("delta.conv"));
  VN_ASSIGN(dt_bias, loader.vector("delta.dt_bias"));
  VN_ASSIGN(norm, loader.vector("delta.norm"));
  VN_ASSIGN(std::vector<float> rates, loader.host_vector("delta.a_log"));
  if (decay_is_log) {
    for (float& rate : rates) rate = -static_cast<float>(std::exp(static_cast<double>(rate)));
  }
  VN_ASSIGN(decay_rate, loader.place(rates));
  return {};
}

void GatedDeltaNetBlock::reserve(Workspace& workspace) const {
  workspace.need(Slot::kDeltaInput, shape.channels());
  workspace.need(Slot::kDeltaGate, shape.value_width());
  workspace.need(Slot::kDeltaA, shape.value_heads);
  workspace.need(Slot::kDeltaB, shape.value_heads);
  workspace.need(Slot::kMixed, shape.value_width());
}

Status GatedDeltaNetBlock::run(const Step& step, const BlockInput& input, const LayerCache& cache,
                               const BlockOutput& output) const {
  const MatrixView inputs = step.view(Slot::kDeltaInput, shape.channels());
  const MatrixView gate = step.view(Slot::kDeltaGate, shape.value_width());
  const MatrixView decay = step.view(Slot::kDeltaA, shape.value_heads);
  const MatrixView beta = step.view(Slot::kDeltaB, shape.value_heads);
  const MatrixView mixed = step.view(Slot::kMixed, shape.value_width());
  const std::array<LinearOutput, 4> projections = {LinearOutput{&qkv, {}, inputs}, LinearOutput{&z, {}, gate},
                                                   LinearOutput{&a, {}, decay}, LinearOutput{&b, {}, beta}};
  VN_TRY(step.backend.linear({input.x, projections, input.norm}));
  VN_TRY(step.backend.gated_delta_net({.qkv = inputs,
                                       .z = gate,
                                       .a = decay,
                                       .b = beta,
                                       .key_heads = static_cast<std::int32_t>(shape.key_heads),
                                       .value_heads = static_cast<std::int32_t>(shape.value_heads),
                                       .key_dim = static_cast<std::int32_t>(shape.key_head_dim),
                                       .value_dim = static_cast<std::int32_t>(shape.value_head_dim),
                                       .conv_width = static_cast<std::int32_t>(shape.conv_width),
                                       .tiled_heads = tiled_heads,
                                       .convolution_weight = convolution,
                                       .decay_rate = decay_rate,
                                       .dt_bias = dt_bias,
                                       .norm = norm,
                                       .eps = eps,
                                       .slices = step.batch.slices,
                                       .recurrent = cache.recurrent,
                                       .convolution = cache.convolution,
                                       .y = mixed}));
  const LinearOutput last{&out, {}, output.y, output.accumulate};
  return step.backend.linear({mixed, std::span(&last, 1)});
}

}  // namespace vernier
