#include "model/qwen35_layer.h"

namespace vernier::qwen35 {

Status Experts::load(const WeightLoader& loader) {
  VN_TRY(routed.load(loader));
  VN_TRY(shared.load(loader, "shared."));
  VN_ASSIGN(shared_gate, loader.matrix("shared.router"));
  return {};
}

void Experts::reserve(Workspace& workspace) const {
  routed.reserve(workspace);
  shared.reserve(workspace);
  workspace.need(Slot::kSharedGate, 1);
}

Status Experts::run(const Step& step, const InputNorm& norm, MatrixView x) const {
  const MatrixView input = norm.y;
  VN_TRY(routed.route(step, {x, norm}));
  const MatrixView out = step.view(Slot::kOutput, x.cols);
  const MatrixView gate = step.view(Slot::kSharedGate, 1);
  const LinearOutput projection{&shared_gate, {}, gate};
  VN_TRY(step.backend.linear({input, std::span(&projection, 1)}));
  VN_TRY(shared.run(step, {input}, {out}));
  VN_TRY(step.backend.sigmoid_gate({gate, out}));
  VN_TRY(routed.multiply(step, input, x));
  return step.backend.combine({out, x, 1.0F, 1.0F});
}

Status Layer::load(const WeightLoader& loader, const ModelConfig& config, std::int64_t index, bool recurrent,
                   const RopeTable& rope) {
  eps = static_cast<float>(config.norm_eps);
  VN_ASSIGN(attn_norm, loader.vector("attn_norm"));
  VN_ASSIGN(ffn_norm, loader.vector("ffn_norm"));
  if (recurrent) {
    GatedDeltaNetBlock net;
    net.shape = config.delta_net;
    net.eps = eps;
    net.tiled_heads = config.from_gguf;
    VN_TRY(net.load(loader, !config.from_gguf));
    mixer = std::move(net);
  } else {
    AttentionBlock attention = make_attention(config, 0, rope);  // no layer of these families has a window
    attention.gated = true;
    VN_TRY(attention.load(loader));
    mixer = std::move(attention);
  }
  if (config.num_experts == 0) return std::get<MlpBlock>(feed_forward).load(loader);
  Experts experts;
  experts.routed.layer = static_cast<std::int32_t>(index);
  experts.routed.top_k = static_cast<std::int32_t>(config.experts_per_token);
  VN_TRY(experts.load(loader));
  feed_forward = std::move(experts);
  return {};
}

void Layer::reserve(Workspace& workspace, std::int64_t hidden_size) const {
  workspace.need(Slot::kOutput, hidden_size);
  std::visit([&](const auto& block) { block.reserve(workspace); }, mixer);
  std::visit([&](const auto& block) { block.reserve(workspace); }, feed_forward);
}

Status Layer::run(const Step& step, const LayerCache& cache, MatrixView x) const {
  const MatrixView normed = step.view(Slot::kNormed, x.cols);
  const BlockInput input = {x, {attn_norm, eps, normed}};
  if (const auto* net = std::get_if<GatedDeltaNetBlock>(&mixer)) {
    VN_TRY(net->run(step, input, cache, {x, true}));
  } else {
    VN_TRY(std::get<AttentionBlock>(mixer).run(step, input, cache.kv, {x, true}));
  }
  if (const auto* mlp = std::get_if<MlpBlock>(&feed_forward)) {
    return mlp->run(step, {x, {ffn_norm, eps, normed}}, {x, true});
  }
  return std::get<Experts>(feed_forward).run(step, {ffn_norm, eps, normed}, x);
}

}  // namespace vernier::qwen35
