// What a step must at least read and compute, in arithmetic: the denominator of every ratio that `bench` reports.
#pragma once

#include <cstdint>
#include <span>

#include "backend/backend.h"
#include "model/model.h"
#include "placement/weight_traffic.h"

namespace vernier::bench {

/// Each weight is read once a step, each key and value once a step and sequence, states read and written.
struct Cost {
  double weight_bytes = 0.0;
  double cache_bytes = 0.0;  ///< keys, values and recurrent states
  double flops = 0.0;        ///< multiplications and additions of linears and attention

  Cost& operator+=(const Cost& other);
  /// The time that a device with these ceilings needs at least: the longer of reading and computing. 0 when unknown.
  [[nodiscard]] double floor_seconds(const Ceilings& ceilings) const;
};

/// Tokens of one sequence in a step.
struct CostSlice {
  std::int32_t num_tokens = 0;
  std::int32_t past = 0;
  bool wants_logits = false;  ///< of the last token
};

class CostModel {
 public:
  /// `caches` are those of the loaded model; all arguments are copied from.
  CostModel(const ModelConfig& config, const WeightTraffic& traffic, const CacheShapes& shapes, DType kv_dtype);

  /// Experts count as many as so many tokens touch on average when routing is even.
  [[nodiscard]] Cost step(std::span<const CostSlice> slices) const;

 private:
  struct Layer {
    double kv_bytes = 0.0;      ///< a position
    double flops_a_pair = 0.0;  ///< of one query position and one key position, all heads
    double state_bytes = 0.0;   ///< a sequence and step
    std::int64_t window = 0;    ///< 0: all positions
  };

  void add_attention(const Layer& layer, const CostSlice& slice, Cost& cost) const;

  WeightTraffic traffic_;
  double num_experts_ = 0.0;
  double experts_per_token_ = 0.0;
  std::vector<Layer> layers_;
};

}  // namespace vernier::bench
