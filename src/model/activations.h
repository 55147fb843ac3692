// How much memory the activations of a model take, told from its configuration before anything is allocated.
#pragma once

#include <cstdint>

#include "model/model_config.h"

namespace vernier {

/// An upper estimate, in bytes, for steps of up to `max_tokens` tokens and `max_outputs` rows of logits: the slots of
/// Workspace, logits on the device and on the host, and what host backends keep of the experts' inner values.
/// Saturates.
[[nodiscard]] std::uint64_t activation_bytes(const ModelConfig& config, std::int64_t max_tokens,
                                             std::int64_t max_outputs);

}  // namespace vernier
