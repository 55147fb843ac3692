#include "backend/rank.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <vector>

#include "backend/check_args.h"
#include "backend/host_backend.h"
#include "backend/odds.h"

namespace vernier {
namespace {

/// Logits are looked at in groups, most of which have nothing to do with the answer, as their maxima tell. Constant
/// bounds let compilers turn the loops over a group into vectors.
constexpr std::size_t kGroup = 64;
constexpr std::size_t kLanes = 16;
constexpr float kLowest = -std::numeric_limits<float>::infinity();

/// The largest logit of each group, and whether all are finite.
struct Groups {
  std::span<const float> logits;
  float tail[kGroup];  ///< the last group, filled up with -infinity, where it isn't whole
  std::vector<float> largest;
  bool is_finite = true;

  [[nodiscard]] const float* group(std::size_t g) const {
    return (g + 1) * kGroup <= logits.size() ? logits.data() + g * kGroup : tail;
  }
};

/// `unlike[j]` turns NaN when a logit isn't finite.
float largest_of(const float* group, float* unlike) {
  float lanes[kLanes];
  for (std::size_t j = 0; j < kLanes; ++j) lanes[j] = kLowest;
  for (std::size_t i = 0; i < kGroup; i += kLanes) {
    for (std::size_t j = 0; j < kLanes; ++j) {
      const float x = group[i + j];
      lanes[j] = x > lanes[j] ? x : lanes[j];
      unlike[j] += x - x;
    }
  }
  float largest = lanes[0];
  for (const float lane : lanes) largest = lane > largest ? lane : largest;
  return largest;
}

Groups look_at(std::span<const float> logits) {
  Groups groups{logits, {}, {}};
  groups.largest.reserve(logits.size() / kGroup + 1);
  const std::size_t whole = logits.size() / kGroup;
  float unlike[kLanes] = {};
  for (std::size_t g = 0; g < whole; ++g) groups.largest.push_back(largest_of(logits.data() + g * kGroup, unlike));
  for (const float difference : unlike) groups.is_finite = groups.is_finite && difference == 0.0F;

  const std::span<const float> rest = logits.subspan(whole * kGroup);
  std::fill(std::copy(rest.begin(), rest.end(), groups.tail), groups.tail + kGroup, kLowest);
  for (const float x : rest) groups.is_finite = groups.is_finite && std::isfinite(x);
  if (!rest.empty()) groups.largest.push_back(*std::max_element(rest.begin(), rest.end()));
  return groups;
}

/// Candidates for the `count` likeliest: the logits that reach the count-th largest of the groups' maxima.
std::vector<RankedLogit> candidates(const Groups& groups, std::size_t count) {
  float least = kLowest;
  if (count <= groups.largest.size()) {
    std::vector<float> order = groups.largest;
    const auto nth = order.begin() + static_cast<std::ptrdiff_t>(count - 1);
    std::nth_element(order.begin(), nth, order.end(), std::greater<>());
    least = *nth;
  }
  std::vector<RankedLogit> found;
  for (std::size_t g = 0; g < groups.largest.size(); ++g) {
    if (groups.largest[g] < least) continue;
    const std::size_t end = std::min((g + 1) * kGroup, groups.logits.size());
    for (std::size_t at = g * kGroup; at < end; ++at) {
      if (groups.logits[at] >= least) found.push_back({static_cast<std::int32_t>(at), groups.logits[at]});
    }
  }
  return found;
}

constexpr unsigned kDigitBits = 11;
constexpr std::uint32_t kDigits = 1U << kDigitBits;

/// Bits from `shift` on of a number that falls as the logit rises.
std::uint32_t digit_of(float logit, unsigned shift) {
  const auto bits = std::bit_cast<std::uint32_t>(logit + 0.0F);  // one zero
  const std::uint32_t falling = (bits >> 31U) != 0 ? bits : bits ^ 0x7FFFFFFFU;
  return (falling >> shift) % kDigits;
}

std::uint64_t sum_of_odds(const Groups& groups, double inverse_temperature) {
  const float largest = *std::max_element(groups.largest.begin(), groups.largest.end());
  std::uint64_t total = 0;
  for (std::size_t g = 0; g < groups.largest.size(); ++g) {
    const float* group = groups.group(g);
    for (std::size_t i = 0; i < kGroup; ++i) total += odds_of(group[i], largest, inverse_temperature);
  }
  return total;
}

}  // namespace

RankedRow rank_row(std::span<const float> logits, const RankWish& wish, std::span<RankedLogit> entries) {
  RankedRow row;
  const Groups groups = look_at(logits);
  if (!groups.is_finite) return row;
  row.is_finite = 1;
  const std::size_t count = std::min(entries.size(), logits.size());
  std::vector<RankedLogit> found = candidates(groups, count);
  std::partial_sort_copy(found.begin(), found.end(), entries.begin(),
                         entries.begin() + static_cast<std::ptrdiff_t>(count), likelier);
  row.num_entries = static_cast<std::int32_t>(count);
  if (wish.inverse_temperature > 0.0) row.draw_odds = sum_of_odds(groups, wish.inverse_temperature);
  if (wish.unit_odds) row.unit_odds = wish.inverse_temperature == 1.0 ? row.draw_odds : sum_of_odds(groups, 1.0);
  return row;
}

std::vector<RankedLogit> sort_row(std::span<const float> logits) {
  std::vector<RankedLogit> from;
  from.reserve(logits.size());
  for (const float logit : logits) from.push_back({static_cast<std::int32_t>(from.size()), logit});
  std::vector<RankedLogit> to(from.size());
  // By the lowest digit, then stably by the next: ids stay ascending where logits are alike.
  for (unsigned shift = 0; shift < 32; shift += kDigitBits) {
    std::array<std::uint32_t, kDigits> places = {};
    for (const RankedLogit& token : from) ++places[digit_of(token.logit, shift)];
    std::exclusive_scan(places.begin(), places.end(), places.begin(), 0U);
    for (const RankedLogit& token : from) to[places[digit_of(token.logit, shift)]++] = token;
    from.swap(to);
  }
  return from;
}

void rank_row(const RankArgs& args, std::int64_t row) {
  const std::span logits(args.logits.row(row), static_cast<std::size_t>(args.logits.cols));
  const std::span entries(args.entries + row * args.count, static_cast<std::size_t>(args.count));
  args.rows[row] = rank_row(logits, args.wishes[static_cast<std::size_t>(row)], entries);
}

Status HostBackend::rank_logits(const RankArgs& args) {
  VN_TRY(check_args(args));
  for (std::int64_t row = 0; row < args.logits.rows; ++row) rank_row(args, row);
  return {};
}

}  // namespace vernier
