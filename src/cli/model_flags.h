// Flags that several verbs share: which model, on what, and how tokens are chosen.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "vernier/engine.h"

namespace vernier::cli {

/// The MODEL argument (also -m) and how to run it.
struct ModelFlags {
  std::string model;
  EngineOptions engine;
  bool quiet = false;
  bool verbose = false;
  std::string log_format = "text";
  std::vector<std::string> allow_root;

  /// Opens the engine, with warnings and (verbose) a summary on stderr.
  [[nodiscard]] Outcome<std::unique_ptr<Engine>> open() const;
};

/// Only the MODEL argument.
void add_model_argument(CLI::App& app, std::string& model);
/// MODEL, device, precision, threads and so on.
void add_model_flags(CLI::App& app, ModelFlags& flags);

/// Sampling flags; those that weren't given fall back to the checkpoint's generation_config, then to ours.
struct SamplingFlags {
  std::optional<float> temperature;
  std::optional<std::int32_t> top_k;
  std::optional<float> top_p;
  std::optional<float> min_p;
  std::optional<float> repeat_penalty;
  std::optional<float> presence_penalty;
  std::optional<float> frequency_penalty;
  std::optional<std::uint64_t> seed;
  std::int32_t max_tokens = -1;
  std::vector<std::string> stop;
  bool ignore_eos = false;
  std::vector<std::string> logit_bias;  ///< ID=VALUE
  std::optional<std::int32_t> logprobs;

  /// Combines flags and defaults; the seed is drawn when none was given. kInvalidArgument for a malformed --logit-bias.
  [[nodiscard]] Outcome<SamplingParams> resolve(const GenerationDefaults& defaults) const;
};
void add_sampling_flags(CLI::App& app, SamplingFlags& flags);

}  // namespace vernier::cli
