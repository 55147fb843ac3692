#include "model/blocks/attention.h"

#include <array>
#include <cmath>

namespace vernier {
namespace {

/// A dense [tokens, heads * head_dim] matrix seen as [tokens * heads, head_dim].
MatrixView by_head(MatrixView m, std::int64_t head_dim) {
  return {m.data, m.rows * (m.cols / head_dim), head_dim, head_dim};
}

}  // namespace

AttentionBlock make_attention(const ModelConfig& config, std::int64_t layer, const RopeTable& rope) {
  AttentionBlock block;
  block.num_heads = static_cast<std::int32_t>(config.num_heads);
  block.num_kv_heads = static_cast<std::int32_t>(config.num_kv_heads);
  block.head_dim = static_cast<std::int32_t>(config.head_dim);
  block.scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(config.head_dim)));
  block.eps = static_cast<float>(config.norm_eps);
  const bool slides = config.layers[static_cast<std::size_t>(layer)] == LayerKind::kSlidingAttention;
  block.window = slides ? static_cast<std::int32_t>(config.sliding_window) : 0;
  block.rope = &rope;
  return block;
}

Status AttentionBlock::load(const WeightLoader& loader) {
  VN_ASSIGN(q, loader.matrix("q"));
  VN_ASSIGN(o, loader.matrix("o"));
  VN_ASSIGN(q_bias, loader.optional_vector("q_bias"));
  VN_ASSIGN(o_bias, loader.optional_vector("o_bias"));
  VN_ASSIGN(q_norm, loader.optional_vector("q_norm"));
  VN_ASSIGN(sinks, loader.optional_vector("sinks"));
  if (!owns_kv) return {};
  VN_ASSIGN(k, loader.matrix("k"));
  VN_ASSIGN(k_bias, loader.optional_vector("k_bias"));
  VN_ASSIGN(k_norm, loader.optional_vector("k_norm"));
  if (!loader.has("v")) return {};
  VN_ASSIGN(v, loader.matrix("v"));
  VN_ASSIGN(v_bias, loader.optional_vector("v_bias"));
  return {};
}

void AttentionBlock::reserve(Workspace& workspace) const {
  workspace.need(Slot::kQuery, std::int64_t{num_heads} * head_dim);
  workspace.need(Slot::kMixed, std::int64_t{num_heads} * head_dim);
  if (gated) workspace.need(Slot::kGatedQuery, 2 * std::int64_t{num_heads} * head_dim);
  if (!owns_kv) return;
  workspace.need(Slot::kKey, std::int64_t{num_kv_heads} * head_dim);
  workspace.need(Slot::kValue, std::int64_t{num_kv_heads} * head_dim);
}

MatrixView AttentionBlock::half_of_pairs(const Step& step, std::int64_t which) const {
  const MatrixView pairs = step.view(Slot::kGatedQuery, 2 * std::int64_t{num_heads} * head_dim);
  return {pairs.data + which * head_dim, pairs.rows * num_heads, head_dim, 2 * std::int64_t{head_dim}};
}

Status AttentionBlock::project(const Step& step, const BlockInput& input, MatrixView query, MatrixView key,
                               MatrixView value) const {
  const MatrixView projected = gated ? step.view(Slot::kGatedQuery, 2 * query.cols) : query;
  const std::array<LinearOutput, 3> outputs = {LinearOutput{&q, q_bias, projected}, LinearOutput{&k, k_bias, key},
                                               LinearOutput{&v, v_bias, value}};
  const std::size_t count = !owns_kv ? 1 : (v.present() ? 3 : 2);
  VN_TRY(step.backend.linear({input.x, std::span(outputs).first(count), input.norm}));
  if (gated) VN_TRY(step.backend.combine({half_of_pairs(step, 0), by_head(query, head_dim), 1.0F, 0.0F}));
  if (owns_kv && !v.present()) VN_TRY(step.backend.combine({key, value, 1.0F, 0.0F}));
  return {};
}

Status AttentionBlock::run(const Step& step, const BlockInput& input, const KvLayer& kv,
                           const BlockOutput& output) const {
  const std::int64_t kv_cols = std::int64_t{num_kv_heads} * head_dim;
  const MatrixView query = step.view(Slot::kQuery, std::int64_t{num_heads} * head_dim);
  const MatrixView mixed = step.view(Slot::kMixed, query.cols);
  const MatrixView key = owns_kv ? step.view(Slot::kKey, kv_cols) : MatrixView{};
  const MatrixView value = owns_kv ? step.view(Slot::kValue, kv_cols) : MatrixView{};
  VN_TRY(project(step, input, query, key, value));
  VN_TRY(step.backend.rope_and_store_kv({.q = query,
                                         .k = key,
                                         .v = value,
                                         .num_heads = num_heads,
                                         .num_kv_heads = num_kv_heads,
                                         .head_dim = head_dim,
                                         .q_norm = q_norm,
                                         .k_norm = k_norm,
                                         .normalize_v = normalize_v,
                                         .eps = eps,
                                         .rope = rope,
                                         .slices = step.batch.slices,
                                         .kv = kv}));
  VN_TRY(step.backend.attention({.q = query,
                                 .num_heads = num_heads,
                                 .scale = scale,
                                 .window = window,
                                 .sinks = sinks,
                                 .slices = step.batch.slices,
                                 .kv = kv,
                                 .y = mixed}));
  if (gated) VN_TRY(step.backend.sigmoid_gate({half_of_pairs(step, 1), by_head(mixed, head_dim)}));
  const LinearOutput last{&o, o_bias, output.y, output.accumulate};
  return step.backend.linear({mixed, std::span(&last, 1)});
}

}  // namespace vernier
