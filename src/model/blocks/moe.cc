#include "model/blocks/moe.h"

namespace vernier {
namespace {

/// The biases of a bank, [experts, n] in one piece, as one span an expert.
Result<std::vector<std::span<const float>>> load_biases(const WeightLoader& loader, std::string_view role,
                                                        std::size_t num_experts) {
  std::vector<std::span<const float>> biases;
  VN_ASSIGN(const std::span<const float> all, loader.optional_vector(role));
  if (all.empty()) return biases;
  const std::size_t size = all.size() / num_experts;
  for (std::size_t e = 0; e < num_experts; ++e) biases.push_back(all.subspan(e * size, size));
  return biases;
}

}  // namespace

Status MoeBlock::load(const WeightLoader& loader) {
  VN_ASSIGN(router, loader.matrix("router"));
  VN_ASSIGN(router_bias, loader.optional_vector("router_bias"));
  VN_ASSIGN(expert_scale, loader.optional_vector("expert_scale"));
  VN_ASSIGN(experts.gate, loader.experts("experts.gate"));
  VN_ASSIGN(experts.up, loader.experts("experts.up"));
  VN_ASSIGN(experts.down, loader.experts("experts.down"));
  const std::size_t count = experts.gate.size();
  VN_ASSIGN(experts.gate_bias, load_biases(loader, "experts.gate_bias", count));
  VN_ASSIGN(experts.up_bias, load_biases(loader, "experts.up_bias", count));
  VN_ASSIGN(experts.down_bias, load_biases(loader, "experts.down_bias", count));
  return {};
}

void MoeBlock::reserve(Workspace& workspace) const {
  workspace.need(Slot::kExpertIds, top_k);
  workspace.need(Slot::kExpertWeights, top_k);
}

Status MoeBlock::run(const Step& step, MatrixView router_input, MatrixView input, MatrixView y) const {
  std::int32_t* const ids = step.workspace.integers(Slot::kExpertIds);
  float* const weights = step.view(Slot::kExpertWeights, top_k).data;
  VN_TRY(step.backend.route_experts({.x = router_input,
                                     .router = &router,
                                     .bias = router_bias,
                                     .rule = rule,
                                     .expert_scale = expert_scale,
                                     .top_k = top_k,
                                     .ids = ids,
                                     .weights = weights}));
  return step.experts.run(layer, {.x = input,
                                  .experts = &experts,
                                  .activation = activation,
                                  .top_k = top_k,
                                  .ids = ids,
                                  .weights = weights,
                                  .y = y});
}

}  // namespace vernier
