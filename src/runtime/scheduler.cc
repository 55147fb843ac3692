#include "runtime/scheduler.h"

#include <algorithm>

namespace vernier {

bool Scheduler::admit(Sequence& sequence) {
  const std::int32_t needed = cache_.pages_for(sequence.max_total);
  if (cache_.pages().available() < needed || cache_.slots().available() == 0) return false;
  for (std::int32_t i = 0; i < needed; ++i) sequence.pages.push_back(cache_.pages().take());
  sequence.state_slot = cache_.slots().take();
  return true;
}

void Scheduler::remove(Sequence& sequence) {
  std::erase(waiting_, &sequence);
  std::erase(running_, &sequence);
  for (const std::int32_t page : sequence.pages) cache_.pages().give_back(page);
  sequence.pages.clear();
  if (sequence.state_slot >= 0) cache_.slots().give_back(sequence.state_slot);
  sequence.state_slot = -1;
}

StepPlan Scheduler::plan() {
  while (!waiting_.empty() && static_cast<std::int32_t>(running_.size()) < limits_.max_sequences &&
         admit(*waiting_.front())) {
    running_.push_back(waiting_.front());
    waiting_.pop_front();
  }
  StepPlan plan;
  const auto share = [&](Sequence& sequence) {
    const std::int32_t count = std::min(sequence.num_pending(), limits_.max_step_tokens - plan.num_tokens);
    if (count <= 0) return;
    const bool complete = count == sequence.num_pending();
    plan.shares.push_back({&sequence, count, complete});
    plan.num_tokens += count;
    plan.num_outputs += complete ? 1 : 0;
  };
  // Sequences that only need their next token come before chunks of prompts, so that a long prompt delays nobody.
  for (Sequence* sequence : running_) {
    if (sequence->num_pending() == 1) share(*sequence);
  }
  for (Sequence* sequence : running_) {
    if (sequence->num_pending() > 1) share(*sequence);
  }
  return plan;
}

}  // namespace vernier
