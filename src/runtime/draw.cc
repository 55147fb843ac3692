#include "runtime/draw.h"

#include <algorithm>
#include <cmath>

#include "backend/odds.h"

namespace vernier {
namespace {

/// The candidates at the front of a ranking that filters have left so far, and their odds together, those behind the
/// ranking's end included.
class Candidates {
 public:
  Candidates(const Ranking& ranking, double inverse_temperature)
      : tokens_(ranking.entries),
        inverse_temperature_(inverse_temperature),
        reaches_all_(ranking.is_complete()),
        total_(ranking.row.draw_odds) {}

  // False where it takes tokens behind the ranking's end.
  [[nodiscard]] bool keep_likeliest(std::size_t count);
  /// Keeps the fewest likeliest whose odds reach `share` of all.
  [[nodiscard]] bool keep_share(double share);
  [[nodiscard]] bool keep_odds_from(double least);
  /// The token at which the odds, added up in order, pass a share `uniform` of all.
  [[nodiscard]] std::optional<std::int32_t> at(double uniform) const;

 private:
  [[nodiscard]] std::uint64_t odds(std::size_t i) const {
    return odds_of(tokens_[i].logit, tokens_[0].logit, inverse_temperature_);
  }
  void keep(std::size_t count, std::uint64_t total);
  /// Where the odds, added up in order, come to exceed `limit`, and what they add up to there.
  struct Place {
    std::size_t index = 0;
    std::uint64_t sum = 0;
  };
  [[nodiscard]] std::optional<Place> find_passing(std::uint64_t limit) const;

  std::span<const RankedLogit> tokens_;
  double inverse_temperature_;
  bool reaches_all_;
  std::uint64_t total_;
};

void Candidates::keep(std::size_t count, std::uint64_t total) {
  tokens_ = tokens_.first(count);
  total_ = total;
  reaches_all_ = true;
}

bool Candidates::keep_likeliest(std::size_t count) {
  if (count > tokens_.size() && !reaches_all_) return false;
  count = std::min(count, tokens_.size());
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < count; ++i) sum += odds(i);
  keep(count, sum);
  return true;
}

bool Candidates::keep_share(double share) {
  const auto wanted = static_cast<std::uint64_t>(std::ceil(share * static_cast<double>(total_)));
  const auto last = find_passing(std::min(wanted, total_) - 1);
  if (!last) return false;
  keep(last->index + 1, last->sum);
  return true;
}

bool Candidates::keep_odds_from(double least) {
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < tokens_.size(); ++i) {
    const std::uint64_t own = odds(i);
    if (static_cast<double>(own) < least) {
      keep(i, sum);
      return true;
    }
    sum += own;
  }
  return reaches_all_;
}

std::optional<std::int32_t> Candidates::at(double uniform) const {
  const auto limit = static_cast<std::uint64_t>(uniform * static_cast<double>(total_));
  const auto place = find_passing(std::min(limit, total_ - 1));
  if (!place) return std::nullopt;
  return tokens_[place->index].id;
}

std::optional<Candidates::Place> Candidates::find_passing(std::uint64_t limit) const {
  Place place;
  for (; place.index < tokens_.size(); ++place.index) {
    place.sum += odds(place.index);
    if (place.sum > limit) return place;
  }
  return std::nullopt;
}

}  // namespace

std::optional<std::int32_t> draw(const SamplingParams& params, const Ranking& ranking, double uniform) {
  Candidates candidates(ranking, inverse_temperature(params));
  if (params.top_k > 0 && !candidates.keep_likeliest(static_cast<std::size_t>(params.top_k))) return std::nullopt;
  if (params.top_p < 1.0F && !candidates.keep_share(static_cast<double>(params.top_p))) return std::nullopt;
  const double least = static_cast<double>(params.min_p) * kTopOdds;
  if (params.min_p > 0.0F && !candidates.keep_odds_from(least)) return std::nullopt;
  return candidates.at(uniform);
}

}  // namespace vernier
