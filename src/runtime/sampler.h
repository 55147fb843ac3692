// Logits to a token: penalties, greedy choice or draw (draw.h), and log-probabilities. One row at a time: from the
// row's ranking, which a device made, or from the row itself in host memory.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "backend/ranking.h"
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

  /// What choose() needs of a ranking: how many entries, and which sums.
  struct Needs {
    std::int32_t count = 0;
    RankWish wish;
  };
  [[nodiscard]] Needs needs() const;
  /// True where no ranking of the model's logits will do: something changes them first, or the filters reach too far.
  [[nodiscard]] bool needs_row() const;

  /// Chooses the token that follows `position` - 1 tokens and records it, from a ranking with what needs() says.
  /// nullopt when that doesn't reach far enough: then it takes the row. kInternal on non-finite logits.
  [[nodiscard]] Result<std::optional<Choice>> choose(const Ranking& ranking, std::uint64_t position);
  /// The same from the row itself, always to the same choice. Logits [vocab] are modified. Ids from `usable` on
  /// (padding rows of the head) are never chosen. kInvalidArgument when the request's bias bans every token.
  [[nodiscard]] Result<Choice> choose(std::span<float> logits, std::int64_t usable, std::uint64_t position);

 private:
  struct Count {
    bool in_prompt = false;
    std::int32_t in_output = 0;
  };
  [[nodiscard]] bool changes_logits() const;
  [[nodiscard]] Needs logprob_needs() const;
  void apply_penalties(std::span<float> logits) const;
  [[nodiscard]] std::int32_t pick(std::span<const float> logits, const Ranking& ranking, std::uint64_t position) const;
  /// `model` ranks the model's own logits, of which `token` is one.
  [[nodiscard]] Choice record(const RankedLogit& token, const Ranking& model);

  SamplingParams params_;
  std::unordered_map<std::int32_t, Count> counts_;
};

}  // namespace vernier
