#include "model/cache_scales.h"

#include <string>

#include "model/decoder.h"

namespace vernier {

std::vector<KvScales> cache_scales(const WeightSet& weights, const ModelConfig& config, std::size_t num_caches) {
  const auto stored = [&](const std::string& role) -> const float* {
    const auto found = weights.vectors.find(role);
    return found == weights.vectors.end() || found->second.empty() ? nullptr : &found->second.front();
  };
  std::vector<KvScales> scales(num_caches);
  for (std::size_t i = 0; i < num_caches; ++i) {
    const std::string prefix = i < static_cast<std::size_t>(config.num_layers) ? layer_prefix(i) : "mtp.";
    const float* key = stored(prefix + "k_scale");
    const float* value = stored(prefix + "v_scale");
    if (key == nullptr && value == nullptr) continue;
    scales[i] = {key != nullptr ? *key : *value, value != nullptr ? *value : *key, true};
  }
  return scales;
}

}  // namespace vernier
