// The gated MLP: down(act(gate(x)) * up(x)).
#pragma once

#include <cstdint>
#include <span>

#include "model/blocks/step.h"
#include "model/weight_loader.h"

namespace vernier {

struct MlpBlock {
  ActivationSpec activation;
  Weight gate;
  Weight up;
  Weight down;
  std::span<const float> gate_bias, up_bias, down_bias;  ///< each may be empty

  /// Reads roles `<name>gate`, `<name>up`, `<name>down` and their biases; `name` is "" or "shared.".
  [[nodiscard]] Status load(const WeightLoader& loader, const std::string& name = "");
  void reserve(Workspace& workspace) const;
  [[nodiscard]] Status run(const Step& step, const BlockInput& input, const BlockOutput& output) const;
};

}  // namespace vernier
