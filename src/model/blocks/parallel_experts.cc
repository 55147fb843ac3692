#include "model/blocks/parallel_experts.h"

#include <cmath>
#include <vector>

namespace vernier {

Status ParallelExpertsBlock::load(const WeightLoader& loader, std::int64_t hidden_size) {
  VN_ASSIGN(std::vector<float> scale, loader.host_vector("router_scale"));
  const double root = std::sqrt(static_cast<double>(hidden_size));
  for (float& value : scale) value = static_cast<float>(value / root);
  VN_ASSIGN(router_norm, loader.place(scale));
  VN_ASSIGN(input_norm, loader.vector("experts_norm"));
  VN_ASSIGN(post_mlp_norm, loader.vector("post_mlp_norm"));
  VN_ASSIGN(post_norm, loader.vector("post_experts_norm"));
  return moe.load(loader);
}

void ParallelExpertsBlock::reserve(Workspace& workspace, std::int64_t hidden_size) const {
  moe.reserve(workspace);
  for (const Slot slot : {Slot::kRouterInput, Slot::kMixed}) workspace.need(slot, hidden_size);
}

Status ParallelExpertsBlock::run(const Step& step, MatrixView x, MatrixView out) const {
  const auto norm = [&](MatrixView from, std::span<const float> weight, MatrixView to) {
    return step.backend.rms_norm({.x = from, .weight = weight, .eps = eps, .y = to});
  };
  const MatrixView router_input = step.view(Slot::kRouterInput, x.cols);
  const MatrixView input = step.view(Slot::kNormed, x.cols);
  const MatrixView sum = step.view(Slot::kMixed, x.cols);
  VN_TRY(norm(out, post_mlp_norm, out));
  VN_TRY(norm(x, input_norm, input));
  VN_TRY(step.backend.combine({input, sum, 0.0F, 0.0F}));
  VN_TRY(moe.run(step, {x, {router_norm, eps, router_input}}, input, sum));
  VN_TRY(norm(sum, post_norm, sum));
  return step.backend.combine({sum, out, 1.0F, 1.0F});
}

}  // namespace vernier
