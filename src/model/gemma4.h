// Shared by gemma4's three files: gemma4_config.cc reads configurations, gemma4_tensors.cc lists tensors, gemma4.cc
// runs.
#pragma once

#include <cstdint>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "checkpoint/tensor_spec.h"
#include "model/model.h"

namespace vernier::gemma4 {

[[nodiscard]] inline bool is_full(const ModelConfig& config, std::int64_t layer) {
  return config.layers[static_cast<std::size_t>(layer)] == LayerKind::kFullAttention;
}
/// True for the last layers, which read the keys and values of an earlier layer of their kind.
[[nodiscard]] inline bool shares_kv(const ModelConfig& config, std::int64_t layer) {
  return layer >= config.num_layers - config.gemma4.shared_kv_layers;
}
[[nodiscard]] inline std::int64_t head_dim(const ModelConfig& config, std::int64_t layer) {
  return is_full(config, layer) ? config.gemma4.full_head_dim : config.head_dim;
}
[[nodiscard]] inline std::int64_t kv_heads(const ModelConfig& config, std::int64_t layer) {
  return is_full(config, layer) ? config.gemma4.full_kv_heads : config.num_kv_heads;
}
[[nodiscard]] inline std::int64_t mlp_width(const ModelConfig& config, std::int64_t layer) {
  return config.intermediate_size * (config.gemma4.wide_shared_mlp && shares_kv(config, layer) ? 2 : 1);
}

[[nodiscard]] Result<ModelConfig> config_from_hf(const Json& json);
[[nodiscard]] Result<ModelConfig> config_from_gguf(const Json& keys);
[[nodiscard]] std::vector<TensorSpec> tensors(const ModelConfig& config);
[[nodiscard]] std::vector<IgnoreRule> ignored(const ModelConfig& config);

/// The layer whose cache `index` reads: itself, or the last of its kind before the sharing ones.
[[nodiscard]] std::size_t kv_layer(const ModelConfig& config, std::size_t index);
[[nodiscard]] CacheShapes caches(const ModelConfig& config);

}  // namespace vernier::gemma4
