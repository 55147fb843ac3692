// Scales of an FP8 KV cache that a checkpoint brings along.
#pragma once

#include <cstdint>
#include <vector>

#include "checkpoint/weight_set.h"
#include "model/model.h"

namespace vernier {

/// The scales of every layer of CacheShapes::kv, `num_caches` of them. A layer with only one of the two uses it for
/// both, as producers of such files mean it; a layer with none has ones. `weights` must have been resolved with
/// ResolveOptions::use_cache_scales, else all are ones.
[[nodiscard]] std::vector<KvScales> cache_scales(const WeightSet& weights, const ModelConfig& config,
                                                 std::size_t num_caches);

}  // namespace vernier
