// Finds the tensors that a model asked for among the records of a checkpoint. The core of resolve(), apart from files
// so that tests can hand it records of their own. Internal to checkpoint/.
#pragma once

#include <memory>
#include <span>

#include "checkpoint/quant_config.h"
#include "checkpoint/resolved.h"

namespace vernier {

struct ResolveInput {
  std::span<const TensorRecord> records;   ///< names unique
  std::span<const std::uint32_t> by_name;  ///< positions in ascending order of names
  bool gguf = false;
  std::span<const TensorSpec> specs;
  std::span<const IgnoreRule> ignore;
  const QuantConfig* config = nullptr;
  ResolveOptions options;
};

/// See resolve() in weight_set.h. `files` of the result is left empty.
[[nodiscard]] Result<std::unique_ptr<ResolvedCheckpoint::Impl>> resolve_records(const ResolveInput& input);

}  // namespace vernier
