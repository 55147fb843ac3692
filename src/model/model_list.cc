// The families that Vernier knows. A new one is a file of its own and a line here.
#include "model/architectures.h"
#include "model/model.h"

namespace vernier {

std::span<const Architecture> model_list() {
  static const Architecture kModels[] = {
      llama_architecture(),  qwen2_architecture(),     qwen3_architecture(),  qwen3moe_architecture(),
      qwen35_architecture(), qwen35moe_architecture(), gemma4_architecture(), gpt_oss_architecture(),
  };
  return kModels;
}

}  // namespace vernier
