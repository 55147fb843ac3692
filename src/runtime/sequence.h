// The state of one request while it runs: its tokens, its pages, how far the model has read.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace vernier {

struct Sequence {
  std::uint64_t id = 0;
  std::vector<std::int32_t> tokens;  ///< prompt, then what was generated
  std::int32_t num_prompt = 0;
  std::int32_t num_computed = 0;  ///< leading tokens whose keys, values and states are in the caches
  std::int32_t max_total = 0;     ///< prompt and output together never exceed this
  std::vector<std::int32_t> pages;
  std::int32_t state_slot = -1;  ///< -1: not admitted yet

  [[nodiscard]] std::int32_t num_pending() const { return static_cast<std::int32_t>(tokens.size()) - num_computed; }
};

/// What one step computes of one sequence.
struct StepShare {
  Sequence* sequence = nullptr;
  std::int32_t num_tokens = 0;
  bool wants_logits = false;  ///< its last pending token is computed: a new token can be chosen
};

/// What one step computes, in row order.
struct StepPlan {
  std::vector<StepShare> shares;
  std::int32_t num_tokens = 0;
  std::int32_t num_outputs = 0;
};

}  // namespace vernier
