// What a model will need on a device, in arithmetic, before anything is allocated.
#pragma once

#include <cstdint>

#include "backend/backend.h"

namespace vernier {

struct MemoryNeeds {
  std::uint64_t weight_bytes = 0;
  std::uint64_t kv_bytes_per_token = 0;
  std::uint64_t state_bytes_per_sequence = 0;
  std::uint64_t activation_bytes = 0;
  std::uint64_t movable_bytes = 0;  ///< of weight_bytes: experts that could lie elsewhere (--experts offload, hybrid)
};

struct MemoryPlan {
  std::uint64_t cache_bytes = 0;  ///< keys, values and states of all sequences at full context
  std::uint64_t total_bytes = 0;  ///< everything
  bool fits = false;
  std::int64_t largest_context = 0;  ///< tokens a sequence for which everything would fit; 0: not even the weights
};

/// Plans `sequences` sequences of `context` tokens each in `memory.available_bytes`.
[[nodiscard]] MemoryPlan plan_memory(const MemoryNeeds& needs, const MemoryInfo& memory, std::int64_t context,
                                     std::int64_t sequences);

/// kOutOfMemory with needed, available and total memory when the plan doesn't fit, and with the largest context or the
/// placement of experts that would.
[[nodiscard]] Status check_fits(const MemoryPlan& plan, const MemoryNeeds& needs, const MemoryInfo& memory);

}  // namespace vernier
