#include "placement/hybrid_split.h"

#include <algorithm>
#include <cmath>

namespace vernier {

std::int64_t HybridSplit::host_share(std::int64_t missing) {
  last_was_split_ = false;
  in_trial_ = false;
  if (missing <= 0) return 0;
  const std::int64_t at = step_++ % kRound;
  in_trial_ = at < 2 * kTrial;
  if (at == 0) {
    split_step_ = {};
    fetched_step_ = {};
  }
  if (at == 2 * kTrial) {
    // A little slower is within what a shared machine does by itself.
    constexpr double kTolerance = 1.02;
    split_wins_ = split_step_.value <= fetched_step_.value * kTolerance;
  }
  const bool split = at < kTrial ? false : at < 2 * kTrial ? true : split_wins_;
  if (!split) return 0;
  const std::int64_t share = even_share(missing);
  last_was_split_ = share > 0;
  return share;
}

std::int64_t HybridSplit::even_share(std::int64_t missing) const {
  if (missing <= 0) return 0;
  std::int64_t share = (missing + 1) / 2;
  const double both = host_seconds_.value + fetch_seconds_.value;
  if (host_seconds_.count > 0 && fetch_seconds_.count > 0 && both > 0.0) {
    // The lanes end together where share * host = (missing - share) * fetch.
    share = std::llround(static_cast<double>(missing) * fetch_seconds_.value / both);
  }
  return std::clamp<std::int64_t>(share, 0, missing);
}

void HybridSplit::record_host(double seconds, std::int64_t experts) {
  if (experts > 0) host_seconds_.add(seconds / static_cast<double>(experts));
}

void HybridSplit::record_fetch(double seconds_per_expert) {
  if (seconds_per_expert > 0.0) fetch_seconds_.add(seconds_per_expert);
}

void HybridSplit::record_step(double seconds, std::int64_t missing) {
  if (missing > 0) (last_was_split_ ? split_step_ : fetched_step_).add(seconds / static_cast<double>(missing));
}

}  // namespace vernier
