// The likeliest logits of a row, in order: what Backend::rank_logits makes and the sampler reads.
#pragma once

#include <cstdint>
#include <span>

namespace vernier {

/// The most entries of a ranking.
inline constexpr std::int32_t kMostRanked = 256;

/// A logit and its place in the row.
struct RankedLogit {
  std::int32_t id = 0;
  float logit = 0.0F;
};

/// What is wanted of a row beside its likeliest logits: sums of odds_of() (odds.h) over the row.
struct RankWish {
  double inverse_temperature = 0.0;  ///< 0: no sum
  bool unit_odds = false;            ///< the sum at temperature 1 too
};

struct RankedRow {
  std::uint64_t draw_odds = 0;   ///< at the wish's temperature; 0: not wished
  std::uint64_t unit_odds = 0;   ///< at temperature 1; 0: not wished
  std::int32_t num_entries = 0;  ///< that were filled; 0 where a logit isn't finite
  std::int32_t is_finite = 0;    ///< 1: all logits are
};

/// The larger logit, or the lower id of a tie.
[[nodiscard]] inline bool likelier(const RankedLogit& a, const RankedLogit& b) {
  return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
}

/// What rank_logits found in a row of `num_ids` logits.
struct Ranking {
  RankedRow row;
  std::span<const RankedLogit> entries;  ///< row.num_entries of them
  std::int64_t num_ids = 0;

  [[nodiscard]] bool is_complete() const { return static_cast<std::int64_t>(entries.size()) == num_ids; }
};

}  // namespace vernier
