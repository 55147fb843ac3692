// One function a family, defined in the family's own file. Used by model_list.cc alone.
#pragma once

#include "model/model.h"

namespace vernier {

[[nodiscard]] Architecture llama_architecture();
[[nodiscard]] Architecture qwen2_architecture();
[[nodiscard]] Architecture qwen3_architecture();
[[nodiscard]] Architecture qwen3moe_architecture();
[[nodiscard]] Architecture qwen35_architecture();
[[nodiscard]] Architecture qwen35moe_architecture();
[[nodiscard]] Architecture gemma4_architecture();
[[nodiscard]] Architecture gpt_oss_architecture();

}  // namespace vernier
