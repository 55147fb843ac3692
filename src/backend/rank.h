// Backend::rank_logits for one row in host memory: what host backends run, and the sampler on logits that it changed.
#pragma once

#include <span>
#include <vector>

#include "backend/backend.h"

namespace vernier {

/// Ranks `logits`, 1 to kMostLogits of them. Fills `entries`, which aren't empty, as far as there are logits.
[[nodiscard]] RankedRow rank_row(std::span<const float> logits, const RankWish& wish, std::span<RankedLogit> entries);
/// Row `row` of an operation on host memory.
void rank_row(const RankArgs& args, std::int64_t row);

/// All of a row of finite logits, in a ranking's order.
[[nodiscard]] std::vector<RankedLogit> sort_row(std::span<const float> logits);

}  // namespace vernier
