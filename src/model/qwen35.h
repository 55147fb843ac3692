// Shared by the files of qwen35 and qwen35moe: qwen35_config.cc reads configurations, qwen35_tensors.cc lists tensors,
// qwen35.cc runs.
#pragma once

#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "checkpoint/tensor_spec.h"
#include "model/model.h"

namespace vernier::qwen35 {

/// `sparse`: qwen35moe.
[[nodiscard]] Result<ModelConfig> config_from_hf(const Json& json, bool sparse);
[[nodiscard]] Result<ModelConfig> config_from_gguf(const Json& keys, bool sparse);
[[nodiscard]] std::vector<TensorSpec> tensors(const ModelConfig& config);
[[nodiscard]] std::vector<IgnoreRule> ignored(const ModelConfig& config);

[[nodiscard]] CacheShapes caches(const ModelConfig& config);

}  // namespace vernier::qwen35
