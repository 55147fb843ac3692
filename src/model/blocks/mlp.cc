#include "model/blocks/mlp.h"

#include <array>

namespace vernier {

Status MlpBlock::load(const WeightLoader& loader, const std::string& name) {
  VN_ASSIGN(gate, loader.matrix(name + "gate"));
  VN_ASSIGN(up, loader.matrix(name + "up"));
  VN_ASSIGN(down, loader.matrix(name + "down"));
  VN_ASSIGN(gate_bias, loader.optional_vector(name + "gate_bias"));
  VN_ASSIGN(up_bias, loader.optional_vector(name + "up_bias"));
  VN_ASSIGN(down_bias, loader.optional_vector(name + "down_bias"));
  return {};
}

void MlpBlock::reserve(Workspace& workspace) const {
  workspace.need(Slot::kGate, gate.rows);
  workspace.need(Slot::kUp, up.rows);
}

Status MlpBlock::run(const Step& step, MatrixView input, const BlockOutput& output) const {
  const MatrixView gated = step.view(Slot::kGate, gate.rows);
  const MatrixView raised = step.view(Slot::kUp, up.rows);
  const std::array<LinearOutput, 2> first = {LinearOutput{&gate, gate_bias, gated}, LinearOutput{&up, up_bias, raised}};
  VN_TRY(step.backend.linear({input, first}));
  VN_TRY(step.backend.gated_activation({activation, gated, raised, gated}));
  const LinearOutput last{&down, down_bias, output.y, output.accumulate};
  return step.backend.linear({gated, std::span(&last, 1)});
}

}  // namespace vernier
