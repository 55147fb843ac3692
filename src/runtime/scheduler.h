// Decides what each step computes: running sequences first, then waiting ones while pages last, long prompts in chunks.
// Knows nothing of models or devices.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "runtime/kv_cache.h"
#include "runtime/sequence.h"

namespace vernier {

struct SchedulerLimits {
  std::int32_t max_step_tokens = 256;
  std::int32_t max_sequences = 1;
};

/// First come, first served. A sequence is admitted when the pages of its longest possible run are free, so a running
/// one never has to be stopped for memory.
class Scheduler {
 public:
  Scheduler(SchedulerLimits limits, KvCache& cache) : limits_(limits), cache_(cache) {}

  /// Queues a sequence, which must stay alive until remove(). Its max_total must fit the cache: see can_ever_fit().
  void add(Sequence& sequence) { waiting_.push_back(&sequence); }
  /// Takes a sequence out, waiting or running, and gives its pages and slot back.
  void remove(Sequence& sequence);
  /// The next step; empty when there is nothing to do. Newly admitted sequences have their pages and slot.
  [[nodiscard]] StepPlan plan();
  [[nodiscard]] bool can_ever_fit(std::int32_t max_total) const {
    return cache_.pages_for(max_total) <= cache_.num_pages();
  }
  [[nodiscard]] bool idle() const { return waiting_.empty() && running_.empty(); }

 private:
  bool admit(Sequence& sequence);

  SchedulerLimits limits_;
  KvCache& cache_;
  std::deque<Sequence*> waiting_;
  std::vector<Sequence*> running_;
};

}  // namespace vernier
