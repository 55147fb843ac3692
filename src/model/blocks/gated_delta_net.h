// Linear attention of the qwen35 families: projections around the backend's gated delta net.
#pragma once

#include <cstdint>
#include <span>

#include "model/blocks/step.h"
#include "model/weight_loader.h"

namespace vernier {

struct GatedDeltaNetBlock {
  DeltaNetConfig shape;
  float eps = 0.0F;
  bool tiled_heads = false;  ///< GGUF files: value head h belongs to key head h % key_heads
  Weight qkv, z, a, b, out;
  std::span<const float> convolution, decay_rate, dt_bias, norm;

  /// Reads the roles delta.* of the loader's layer. `decay_is_log`: the files hold A_log, of which -exp() is the rate.
  [[nodiscard]] Status load(const WeightLoader& loader, bool decay_is_log);
  void reserve(Workspace& workspace) const;
  /// `cache` holds the layer's states.
  [[nodiscard]] Status run(const Step& step, const BlockInput& input, const LayerCache& cache,
                           const BlockOutput& output) const;
};

}  // namespace vernier
