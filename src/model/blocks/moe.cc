#include "model/blocks/moe.h"

namespace vernier {

Status MoeBlock::load(const WeightLoader& loader) {
  VN_ASSIGN(router, loader.matrix("router"));
  VN_ASSIGN(router_bias, loader.optional_vector("router_bias"));
  VN_ASSIGN(expert_scale, loader.optional_vector("expert_scale"));
  VN_ASSIGN(experts.gate, loader.experts("experts.gate"));
  VN_ASSIGN(experts.up, loader.experts("experts.up"));
  VN_ASSIGN(experts.down, loader.experts("experts.down"));
  const std::size_t count = experts.gate.size();
  VN_ASSIGN(experts.gate_bias, loader.expert_biases("experts.gate_bias", count));
  VN_ASSIGN(experts.up_bias, loader.expert_biases("experts.up_bias", count));
  VN_ASSIGN(experts.down_bias, loader.expert_biases("experts.down_bias", count));
  return loader.executor().add_bank(layer, top_k, experts);
}

void MoeBlock::reserve(Workspace& workspace) const {
  workspace.need(Slot::kExpertIds, top_k);
  workspace.need(Slot::kExpertWeights, top_k);
}

Status MoeBlock::run(const Step& step, const BlockInput& router_input, MatrixView input, MatrixView y) const {
  VN_TRY(route(step, router_input));
  return multiply(step, input, y);
}

Status MoeBlock::route(const Step& step, const BlockInput& input) const {
  return step.backend.route_experts({.x = input.x,
                                     .router = &router,
                                     .bias = router_bias,
                                     .rule = rule,
                                     .expert_scale = expert_scale,
                                     .top_k = top_k,
                                     .ids = step.workspace.integers(Slot::kExpertIds),
                                     .weights = step.view(Slot::kExpertWeights, top_k).data,
                                     .norm = input.norm});
}

Status MoeBlock::multiply(const Step& step, MatrixView input, MatrixView y) const {
  return step.experts.run(layer, {.x = input,
                                  .experts = &experts,
                                  .activation = activation,
                                  .top_k = top_k,
                                  .ids = step.workspace.integers(Slot::kExpertIds),
                                  .weights = step.view(Slot::kExpertWeights, top_k).data,
                                  .y = y});
}

}  // namespace vernier
