#include "placement/prompt_lanes.h"

namespace vernier {

std::size_t PromptLanes::size_of(std::int64_t rows) {
  std::size_t size = 0;
  for (std::int64_t most = 2 * kFewestRows; rows >= most && size + 1 < kSizes; most *= 2) ++size;
  return size;
}

bool PromptLanes::streams(std::int64_t rows) {
  if (rows < kFewestRows) return false;
  if (rows >= kManyRows) return true;
  Size& size = sizes_[size_of(rows)];
  if (size.device.seconds_a_row == 0.0) return true;
  if (size.host.seconds_a_row == 0.0) return false;
  const bool device_wins = size.device.seconds_a_row < size.host.seconds_a_row;
  const bool others_turn = ++size.turns % kTurns == 0;
  return device_wins != others_turn;
}

void PromptLanes::record(std::int64_t rows, bool streamed, double seconds) {
  if (rows < kFewestRows || seconds <= 0.0) return;
  Size& size = sizes_[size_of(rows)];
  (streamed ? size.device : size.host).add(seconds / static_cast<double>(rows));
}

}  // namespace vernier
