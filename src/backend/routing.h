// The choice of experts once their logits are known: the same code on every host backend, so that ties and odd numbers
// are settled alike.
#pragma once

#include <span>

#include "backend/backend.h"

namespace vernier {

/// Chooses args.top_k experts of one token by `logits` [experts] (bias included) and writes their ids and weights, best
/// first. Ties go to the lower expert. Ids are distinct and valid whatever the logits are, NaN included.
void choose_experts(const RouteArgs& args, std::span<const float> logits, std::int32_t* ids, float* weights);

/// The tokens of each expert, from ids [tokens, top_k]: the uses of expert e are entries
/// [first_use[e], first_use[e + 1]) of `uses`, each use a position t * top_k + j, rising. Ids of -1 are no use.
struct ExpertUses {
  std::vector<std::int64_t> first_use;  ///< [experts + 1]
  std::vector<std::int64_t> uses;       ///< at most [tokens * top_k]
};

/// kInternal when an id is neither -1 nor an expert.
[[nodiscard]] Result<ExpertUses> group_by_expert(std::span<const std::int32_t> ids, std::int64_t num_experts);

}  // namespace vernier
