// How the next token is chosen from logits, and when generation ends.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "vernier/error.h"

namespace vernier {

/// Knobs of one request. The steps apply in this order: logit bias, repetition penalty, presence and frequency
/// penalties, temperature, top-k, top-p, min-p, draw. Reported log-probabilities are those of the untouched logits.
struct SamplingParams {
  float temperature = 1.0F;       ///< 0: greedy, ties to the lowest id (the filters below then don't matter)
  std::int32_t top_k = 0;         ///< keep the k most likely; 0: all
  float top_p = 1.0F;             ///< keep the smallest set whose probabilities reach p, at least one token
  float min_p = 0.0F;             ///< keep tokens at least min_p times as likely as the likeliest
  float repeat_penalty = 1.0F;    ///< logits of tokens seen in prompt or output: divided when positive, else multiplied
  float presence_penalty = 0.0F;  ///< subtracted once from tokens already in the output
  float frequency_penalty = 0.0F;  ///< subtracted once for each time a token stands in the output
  std::uint64_t seed = 0;          ///< the draw at position p depends on (seed, p) and the logits alone
  std::vector<std::pair<std::int32_t, float>> logit_bias;  ///< (token, added value); -100 or less bans the token
  std::optional<std::int32_t> logprobs;  ///< report the token's log-probability and that many likeliest, up to 20
  std::int32_t max_tokens = -1;          ///< -1: as many as the context allows
  std::vector<std::string> stop;         ///< generation ends before the first of these; up to 16 of 256 bytes
  bool ignore_eos = false;               ///< go on past end-of-generation tokens
};

/// kInvalidArgument naming the field, the value and the allowed range; nothing when all is well.
[[nodiscard]] std::optional<Error> validate(const SamplingParams& params, std::int64_t vocab_size);

}  // namespace vernier
