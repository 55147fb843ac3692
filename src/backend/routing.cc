#include "backend/routing.h"

#include <algorithm>
#include <cmath>

namespace vernier {

void choose_experts(const RouteArgs& args, std::span<const float> logits, std::int32_t* ids, float* weights) {
  const auto num_experts = static_cast<std::int32_t>(logits.size());
  std::vector<bool> taken(logits.size());
  for (std::int32_t j = 0; j < args.top_k; ++j) {
    std::int32_t best = -1;
    for (std::int32_t e = 0; e < num_experts; ++e) {
      if (taken[static_cast<std::size_t>(e)]) continue;
      if (best < 0 || logits[static_cast<std::size_t>(e)] > logits[static_cast<std::size_t>(best)]) best = e;
    }
    taken[static_cast<std::size_t>(best)] = true;
    ids[j] = best;
  }
  const double largest = logits[static_cast<std::size_t>(ids[0])];
  const auto exponential = [&](std::int32_t expert) {
    return std::exp(static_cast<double>(logits[static_cast<std::size_t>(expert)]) - largest);
  };
  double total = 0.0;
  if (args.rule == RoutingRule::kSoftmaxAll) {
    for (std::int32_t e = 0; e < num_experts; ++e) total += exponential(e);
  } else {
    for (std::int32_t j = 0; j < args.top_k; ++j) total += exponential(ids[j]);
  }
  for (std::int32_t j = 0; j < args.top_k; ++j) {
    weights[j] = static_cast<float>(exponential(ids[j]) / total);
    if (!args.expert_scale.empty()) weights[j] *= args.expert_scale[static_cast<std::size_t>(ids[j])];
  }
}

Result<ExpertUses> group_by_expert(std::span<const std::int32_t> ids, std::int64_t num_experts) {
  ExpertUses result;
  result.first_use.assign(static_cast<std::size_t>(num_experts) + 1, 0);
  for (const std::int32_t id : ids) {
    if (id == -1) continue;
    if (id < 0 || id >= num_experts) {
      return fail(ErrorCode::kInternal, "expert_mlp: expert {} chosen out of {}", id, num_experts);
    }
    ++result.first_use[static_cast<std::size_t>(id) + 1];
  }
  for (std::size_t e = 1; e < result.first_use.size(); ++e) result.first_use[e] += result.first_use[e - 1];
  std::vector<std::int64_t> next(result.first_use.begin(), result.first_use.end() - 1);
  result.uses.resize(static_cast<std::size_t>(result.first_use.back()));
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] == -1) continue;
    std::int64_t& at = next[static_cast<std::size_t>(ids[i])];
    result.uses[static_cast<std::size_t>(at++)] = static_cast<std::int64_t>(i);
  }
  return result;
}

}  // namespace vernier
