// A model ready to run on a backend: everything that Engine needs below its scheduler.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "placement/experts.h"
#include "placement/memory_plan.h"
#include "placement/weight_traffic.h"
#include "runtime/kv_cache.h"
#include "runtime/opened_model.h"
#include "runtime/step_runner.h"
#include "vernier/engine.h"

namespace vernier {

/// Members are destroyed in reverse order: the model goes before the backend that its weights live on.
struct LoadedModel {
  std::unique_ptr<Backend> backend;
  ExpertPlacement experts;
  std::vector<std::shared_ptr<const MappedFile>> files;
  std::shared_ptr<const Tokenizer> tokenizer;  ///< null: the checkpoint has none
  std::string tokenizer_problem;               ///< why it has none
  std::string chat_template;
  GenerationDefaults defaults;
  std::vector<std::int32_t> eos_ids;  ///< ascending; from tokenizer, config and generation_config
  std::int64_t usable_vocab = 0;      ///< ids below have a token; rows of the head from here on are padding
  std::unique_ptr<Model> model;
  std::unique_ptr<KvCache> cache;
  std::unique_ptr<StepRunner> runner;
  WeightTraffic traffic;
  ModelInfo info;
  std::int32_t batch_tokens = 0;  ///< of one step at most
};

/// Cache element type for EngineOptions::kv and ::precision.
[[nodiscard]] Result<DType> parse_kv_dtype(std::string_view kv, std::string_view precision);
/// Tokens a sequence may have: `asked`, or the model's length cut at 8192.
[[nodiscard]] std::int32_t choose_context(std::int32_t asked, std::int64_t model_length);
struct BatchLimits {
  std::int32_t tokens = 0;     ///< of one step
  std::int32_t sequences = 1;  ///< that run together
  std::int32_t scored = 16;    ///< tokens of one step that keeps the logits of all
};
/// What a model needs in memory, from its headers.
[[nodiscard]] MemoryNeeds memory_needs(const OpenedModel& opened, DType kv_dtype, const BatchLimits& limits);
/// Tokens of one step where nobody asked for a number: what suits the device, fewer where activations would take more
/// than a sixteenth of its memory, and no more than the caches of all sequences hold.
[[nodiscard]] std::int32_t choose_batch(const Backend& backend, const ModelConfig& config, std::int32_t context,
                                        std::int32_t sequences);

/// Opens and loads. Everything that can be refused from headers, configuration or arithmetic is refused before weights
/// are read or memory is taken.
[[nodiscard]] Result<std::unique_ptr<LoadedModel>> load_model(const EngineOptions& options);

/// The first thing that load_model() does: options, headers and configuration.
[[nodiscard]] Result<OpenedModel> open_for_engine(const EngineOptions& options);
/// What load_model() does then, before it takes memory: backend, and room for everything.
[[nodiscard]] Result<std::unique_ptr<LoadedModel>> prepare_model(const OpenedModel& opened,
                                                                 const EngineOptions& options);
/// The rest: weights, model and caches. `loaded` is what prepare_model() gave for the same arguments.
[[nodiscard]] Status finish_model(const OpenedModel& opened, const EngineOptions& options, LoadedModel& loaded);

}  // namespace vernier
