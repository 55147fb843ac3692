#include "bench/cost.h"

#include <algorithm>
#include <cmath>

namespace vernier::bench {

Cost& Cost::operator+=(const Cost& other) {
  weight_bytes += other.weight_bytes;
  cache_bytes += other.cache_bytes;
  flops += other.flops;
  return *this;
}

double Cost::floor_seconds(const Ceilings& ceilings) const {
  if (ceilings.read_gb_s <= 0.0 || ceilings.dot_gflop_s <= 0.0) return 0.0;
  return std::max((weight_bytes + cache_bytes) / (ceilings.read_gb_s * 1e9), flops / (ceilings.dot_gflop_s * 1e9));
}

CostModel::CostModel(const ModelConfig& config, const WeightTraffic& traffic, const CacheShapes& shapes, DType kv_dtype)
    : traffic_(traffic),
      num_experts_(static_cast<double>(config.num_experts)),
      experts_per_token_(static_cast<double>(config.experts_per_token)) {
  const double width = static_cast<double>(dtype_bits(kv_dtype)) / 8.0;
  // The draft block's cache, behind those of the layers, isn't touched here.
  const std::size_t count = std::min(shapes.kv.size(), static_cast<std::size_t>(config.num_layers));
  for (std::size_t i = 0; i < count; ++i) {
    const KvShape& kv = shapes.kv[i];
    Layer layer;
    layer.kv_bytes = 2.0 * kv.num_kv_heads * kv.head_dim * width;
    layer.flops_a_pair = kv.num_kv_heads == 0 ? 0.0 : 4.0 * static_cast<double>(config.num_heads) * kv.head_dim;
    if (i < config.layers.size() && config.layers[i] == LayerKind::kSlidingAttention) {
      layer.window = config.sliding_window;
    }
    if (i < shapes.state.size()) {
      const StateShape& state = shapes.state[i];
      layer.state_bytes = 2.0 * sizeof(float) * static_cast<double>(state.recurrent_floats + state.convolution_floats);
    }
    layers_.push_back(layer);
  }
}

void CostModel::add_attention(const Layer& layer, const CostSlice& slice, Cost& cost) const {
  cost.cache_bytes += layer.state_bytes;
  if (layer.kv_bytes == 0.0) return;
  const double tokens = slice.num_tokens;
  const double past = slice.past;
  const double window = layer.window > 0 ? static_cast<double>(layer.window) : past + tokens;
  cost.cache_bytes += layer.kv_bytes * std::min(past + tokens, window + tokens - 1.0);
  // Query i sees min(past + i + 1, window) keys.
  const double growing = std::clamp(window - past, 0.0, tokens);
  const double pairs = growing * past + growing * (growing + 1.0) / 2.0 + (tokens - growing) * window;
  cost.flops += layer.flops_a_pair * pairs;
}

Cost CostModel::step(std::span<const CostSlice> slices) const {
  double tokens = 0.0;
  double outputs = 0.0;
  Cost cost;
  for (const CostSlice& slice : slices) {
    tokens += slice.num_tokens;
    outputs += slice.wants_logits ? 1.0 : 0.0;
    for (const Layer& layer : layers_) add_attention(layer, slice, cost);
  }
  const auto values = [](const WeightTraffic::Share& share) { return 2.0 * static_cast<double>(share.values); };
  cost.weight_bytes += static_cast<double>(traffic_.trunk.bytes);
  cost.weight_bytes += tokens * static_cast<double>(traffic_.embedding_row_bytes);
  cost.flops += tokens * values(traffic_.trunk) + outputs * values(traffic_.head);
  if (outputs > 0.0) cost.weight_bytes += static_cast<double>(traffic_.head.bytes);
  if (num_experts_ > 0.0) {
    const double part = experts_per_token_ / num_experts_;
    cost.weight_bytes += static_cast<double>(traffic_.experts.bytes) * (1.0 - std::pow(1.0 - part, tokens));
    cost.flops += tokens * part * values(traffic_.experts);
  }
  return cost;
}

}  // namespace vernier::bench
