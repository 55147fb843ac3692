// Fuzzes the whole way from bytes to a token: any GGUF gives an error, or a model that computes finite or refused
// logits.
#include <cstdint>
#include <cstdlib>

#include "model/model.h"
#include "placement/experts.h"
#include "runtime/kv_cache.h"
#include "runtime/opened_model.h"
#include "runtime/step_runner.h"
#include "support/bytes.h"

namespace vernier {
namespace {

/// What the fuzzer's own memory and time allow; real runs ask the machine (placement/memory_plan.h).
bool affordable(const ModelConfig& config, const CacheShapes& shapes) {
  std::int64_t cached = 0;
  for (const KvShape& shape : shapes.kv) cached += std::int64_t{shape.num_kv_heads} * shape.head_dim;
  for (const StateShape& shape : shapes.state) cached += shape.recurrent_floats + shape.convolution_floats;
  const std::int64_t width = config.hidden_size + config.intermediate_size + config.num_heads * config.head_dim +
                             config.num_experts * config.expert_intermediate_size;
  return cached <= 1 << 20 && width <= 1 << 18 && config.vocab_size <= 1 << 16 && config.num_layers <= 64;
}

Status run_one_step(const OpenedModel& opened, Backend& backend) {
  const Architecture& architecture = *opened.description.architecture;
  VN_ASSIGN(const WeightSet weights, load(opened.resolved, {}));
  VN_ASSIGN(const ExpertPlacement experts, place_experts({}, backend));
  VN_ASSIGN(const auto model,
            architecture.build(opened.description.config, weights, {&backend, experts.executor.get()}));
  const CacheShapes shapes = architecture.caches(opened.description.config);
  VN_ASSIGN(KvCache cache, KvCache::create(backend, {shapes.kv, shapes.state, DType::kBF16, 8}, 1, 1));
  VN_ASSIGN(StepRunner runner, StepRunner::create(backend, *model, cache, 4, 1));
  Sequence sequence;
  sequence.tokens = {0, static_cast<std::int32_t>(opened.description.config.vocab_size - 1)};
  sequence.pages = {cache.pages().take()};
  sequence.state_slot = cache.slots().take();
  return runner.run({{{&sequence, 2, true}}, 2, 1}, false);
}

}  // namespace
}  // namespace vernier

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace vernier;
  static const auto backend = create_backend("reference", {});
  const auto file = test::as_file({reinterpret_cast<const char*>(data), size}, "fuzz.gguf");
  auto files = CheckpointFiles::from_gguf(file, {});
  if (!files) return 0;
  (void)open_tokenizer(*files);
  (void)open_chat_template(*files);
  auto opened = describe_checkpoint(std::move(*files), {});
  if (!opened || !opened->resolved.accounting().problems.empty()) return 0;
  const Architecture& architecture = *opened->description.architecture;
  if (architecture.build == nullptr) return 0;
  if (!affordable(opened->description.config, architecture.caches(opened->description.config))) return 0;
  (void)run_one_step(*opened, **backend);
  return 0;
}
