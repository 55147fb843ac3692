#include "model/blocks/mlp.h"

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

Status MlpBlock::run(const Step& step, const BlockInput& input, const BlockOutput& output) const {
  const MatrixView gated = step.view(Slot::kGate, gate.rows);
  const MatrixView raised = step.view(Slot::kUp, up.rows);
  return step.backend.gated_mlp({.x = input.x,
                                 .gate = {&gate, gate_bias, gated},
                                 .up = {&up, up_bias, raised},
                                 .activation = activation,
                                 .down = {&down, down_bias, output.y, output.accumulate},
                                 .norm = input.norm});
}

}  // namespace vernier
