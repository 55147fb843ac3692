// `vernier bench experts`: recorded routing against cache sizes and eviction policies. Counts, no clocks.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "base/result.h"

namespace vernier::bench {

struct ExpertReplayOptions {
  std::filesystem::path trace;             ///< written by --routing-trace
  std::string caches = "10%,25%,50%,75%";  ///< numbers of experts, or shares of those in the trace
  std::string policies = "lru,lfu,fifo";
};

struct ExpertReplay {
  std::string policy;
  std::int64_t slots = 0;
  std::int64_t experts = 0;  ///< layers x experts of the trace
  std::int64_t uses = 0;     ///< experts that a layer needed in a step, each once
  std::int64_t hits = 0;     ///< those that lay in slots
};

/// Every policy with every cache, in the order of the lists. Malformed lists and traces are errors that say where.
[[nodiscard]] Result<std::vector<ExpertReplay>> replay_experts(const ExpertReplayOptions& options);

}  // namespace vernier::bench
