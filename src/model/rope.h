// Frequencies of rotary embeddings: plain, and the published ways of stretching them to longer contexts.
#pragma once

#include <cstdint>
#include <span>

#include "backend/backend.h"
#include "base/result.h"
#include "model/model_config.h"

namespace vernier {

/// The table for heads of `head_dim`. `divisors` ([rotary_dims / 2], or empty) comes from a GGUF file's rope_freqs: it
/// divides the frequencies and stands in place of the configuration's llama3 or proportional scaling.
/// Formulas: Hugging Face's rope utilities (linear, llama3, proportional) and the YaRN paper.
[[nodiscard]] Result<RopeTable> build_rope(const RopeConfig& rope, std::int64_t head_dim,
                                           std::span<const float> divisors = {});

}  // namespace vernier
