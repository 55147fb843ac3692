// A model as far as headers, configuration and side files tell: what `inspect` looks at and what loading starts from.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "checkpoint/checkpoint_files.h"
#include "checkpoint/weight_set.h"
#include "model/model.h"
#include "text/tokenizer.h"
#include "vernier/engine.h"

namespace vernier {

/// Opens what a user calls a model; an empty path or "demo" is the embedded one. Names that aren't paths are looked up
/// under $VERNIER_MODELS, or ~/.local/share/vernier/models.
[[nodiscard]] Result<CheckpointFiles> open_checkpoint(const std::filesystem::path& model, const OpenOptions& options);

struct OpenedModel {
  CheckpointFiles files;
  ModelDescription description;
  ResolvedCheckpoint resolved;
};

/// Opens, describes, resolves. Problems of single tensors are left in resolved.accounting(). Scales that the files hold
/// for an FP8 KV cache are used when that is what `kv_dtype` says.
[[nodiscard]] Result<OpenedModel> open_model(const std::filesystem::path& model, const OpenOptions& options,
                                             DType kv_dtype);

/// The same for files that are open already.
[[nodiscard]] Result<OpenedModel> describe_checkpoint(CheckpointFiles files, const ResolveOptions& options);

/// The tokenizer in a checkpoint: kUnsupported when it has none.
[[nodiscard]] Result<std::shared_ptr<const Tokenizer>> open_tokenizer(const CheckpointFiles& files);

/// The Jinja source in the checkpoint (chat_template.jinja, tokenizer_config.json or GGUF metadata); empty when none.
[[nodiscard]] Result<std::string> open_chat_template(const CheckpointFiles& files);

/// generation_config.json: sampling defaults and further end-of-generation ids. Absent file: nothing.
struct GenerationConfig {
  GenerationDefaults defaults;
  std::vector<std::int64_t> eos_ids;
};
[[nodiscard]] Result<GenerationConfig> open_generation_config(const CheckpointFiles& files);

}  // namespace vernier
