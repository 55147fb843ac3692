#include "model/activations.h"

#include <algorithm>

#include "base/checked_math.h"

namespace vernier {
namespace {

CheckedU64 number(std::int64_t value) { return static_cast<std::uint64_t>(std::max<std::int64_t>(value, 0)); }

CheckedU64 attention_floats(const ModelConfig& config) {
  const std::int64_t head_dim = std::max(config.head_dim, config.gemma4.full_head_dim);
  const CheckedU64 heads = number(config.num_heads) * number(head_dim);
  const CheckedU64 kv_heads = number(std::max(config.num_kv_heads, config.gemma4.full_kv_heads)) * number(head_dim);
  const bool gated = config.delta_net.value_heads > 0;  // query and gate come side by side and are then parted
  return heads * (gated ? 4U : 2U) + kv_heads * 2;
}

CheckedU64 delta_net_floats(const DeltaNetConfig& net) {
  const CheckedU64 keys = number(net.key_heads) * number(net.key_head_dim);
  const CheckedU64 values = number(net.value_heads) * number(net.value_head_dim);
  // Input of the convolution, output gate, output; decay and write strength.
  return keys * 2 + values * 3 + number(net.value_heads) * 2;
}

CheckedU64 feed_forward_floats(const ModelConfig& config) {
  const std::vector<bool>& sparse = config.sparse;
  const bool has_dense = sparse.empty() || std::find(sparse.begin(), sparse.end(), false) != sparse.end();
  const CheckedU64 dense =
      has_dense ? number(config.intermediate_size) * (config.gemma4.wide_shared_mlp ? 2U : 1U) : CheckedU64(0);
  const CheckedU64 beside = number(std::max(config.shared_expert_intermediate_size, config.gemma4.per_layer_width));
  CheckedU64 floats = (dense + beside) * 2;
  if (config.num_experts == 0) return floats;
  const CheckedU64 hidden = number(config.hidden_size);
  // Ids, weights, and gate, up and result of each chosen expert; the router's own input, the sum beside a dense MLP.
  floats += number(config.experts_per_token) * (number(config.expert_intermediate_size) * 2 + hidden + 2);
  return floats + hidden * 2 + 1;
}

}  // namespace

std::uint64_t activation_bytes(const ModelConfig& config, std::int64_t max_tokens, std::int64_t max_outputs) {
  const CheckedU64 hidden = number(config.hidden_size);
  CheckedU64 per_token = hidden * 3;  // residual stream, a block's input and its output
  per_token += attention_floats(config) + delta_net_floats(config.delta_net) + feed_forward_floats(config);
  per_token += number(config.num_layers) * number(config.gemma4.per_layer_width) * 2;  // inputs of all layers, twice
  CheckedU64 per_output = hidden + number(config.vocab_size) * 2;
  if (config.mtp_layers > 0) {
    per_token += hidden * 2;
    per_output += hidden;
  }
  const CheckedU64 floats = per_token * number(max_tokens) + per_output * number(max_outputs);
  return (floats * sizeof(float)).value().value_or(~std::uint64_t{0});
}

}  // namespace vernier
