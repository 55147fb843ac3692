// Logits to a token: penalties, filters, the draw, and log-probabilities. Host code, one row at a time.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "vernier/engine.h"
#include "vernier/sampling.h"

namespace vernier {

/// The sampling state of one request: its knobs and how often each token has occurred.
class Sampler {
 public:
  /// `params` must have passed validate(). Ids of `prompt` count for the repetition penalty only.
  Sampler(SamplingParams params, std::span<const std::int32_t> prompt);

  struct Choice {
    std::int32_t id = 0;
    std::optional<TokenLogprob> logprob;
  };

  /// Chooses the token that follows `position` - 1 tokens and records it. Logits [vocab] are modified. Ids from
  /// `usable` on (padding rows of the head) are never chosen. kInternal on non-finite logits; kInvalidArgument when the
  /// request's bias bans every token.
  [[nodiscard]] Result<Choice> choose(std::span<float> logits, std::int64_t usable, std::uint64_t position);

 private:
  struct Count {
    bool in_prompt = false;
    std::int32_t in_output = 0;
  };
  void apply_penalties(std::span<float> logits) const;
  [[nodiscard]] std::int32_t draw(std::span<const float> logits, std::uint64_t position) const;

  SamplingParams params_;
  std::unordered_map<std::int32_t, Count> counts_;
};

/// Log-probabilities of a row of logits: the chosen token's and the `top` likeliest (ties to the lower id).
[[nodiscard]] TokenLogprob token_logprob(std::span<const float> logits, std::int32_t id, std::int32_t top);

/// Index of the largest value, the lowest on a tie.
[[nodiscard]] std::int32_t argmax(std::span<const float> logits);

}  // namespace vernier
