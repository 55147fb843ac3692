// Reference results of a model: what `vernier verify` compares with. JSON for ids and margins, safetensors for logits.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"

namespace vernier::cli {

struct ReferencePrompt {
  std::vector<std::int32_t> prompt_ids;
  std::vector<std::int32_t> greedy_ids;
  std::vector<double> top2_margin;  ///< [greedy_ids], difference of the two largest logits at each step
};

struct ReferenceFile {
  std::vector<ReferencePrompt> prompts;
  std::size_t vocab_size = 0;  ///< of the logits
  std::vector<float> logits;   ///< [rows, vocab_size]: after each of the first tokens of prompt 0 and its continuation

  /// Choices of the multi-token prediction block on prompt 0 and its continuation: [i] for token i + 2. Often empty.
  std::vector<std::int32_t> draft_ids;

  [[nodiscard]] std::size_t num_logit_rows() const { return vocab_size == 0 ? 0 : logits.size() / vocab_size; }
  [[nodiscard]] std::span<const float> logits_of(std::size_t row) const {
    return std::span(logits).subspan(row * vocab_size, vocab_size);
  }
};

/// Reads FILE.json ("prompts": [{prompt_ids, greedy_ids, top2_margin}]) and, when it's there, the tensor "logits"
/// [rows, vocab] F32 of FILE.safetensors.
[[nodiscard]] Result<ReferenceFile> read_reference(const std::filesystem::path& path);

}  // namespace vernier::cli
