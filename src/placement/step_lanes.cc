#include "placement/step_lanes.h"

namespace vernier {

bool StepLanes::shares(std::int64_t rows) {
  tried_ = nullptr;
  shared_ = false;
  if (rows < 1 || rows > kMostRows) return false;
  Size& size = sizes_[static_cast<std::size_t>(rows - 1)];
  if (size.begins > 0) {
    --size.begins;
    return false;
  }
  const std::int64_t at = size.steps++ % kRound;
  if (at == 0) size.best = {};
  if (at == kTrial) {
    // A little more is within what steps differ by themselves.
    constexpr double kTolerance = 0.98;
    size.sharing_wins = size.best[1] > 0.0 && size.best[1] < size.best[0] * kTolerance;
  }
  if (at < kTrial) tried_ = &size;
  shared_ = at < kTrial ? at / 2 % 2 == 1 : size.sharing_wins;
  return shared_;
}

void StepLanes::record(double seconds) {
  if (tried_ == nullptr || seconds <= 0.0) return;
  // The fastest of a few, as pauses between steps and neighbours on the machine only ever add time.
  double& best = tried_->best[shared_ ? 1 : 0];
  if (best == 0.0 || seconds < best) best = seconds;
  tried_ = nullptr;
}

}  // namespace vernier
