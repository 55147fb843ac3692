#include "runtime/scheduler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <list>
#include <random>
#include <set>

namespace vernier {
namespace {

constexpr std::int32_t kPages = 20;

KvCache make_cache() {
  static const std::unique_ptr<Backend> backend = *create_backend("reference", {});
  CacheShape shape;
  shape.kv = {{1, 4}};
  shape.page_size = 8;
  return *KvCache::create(*backend, shape, kPages, 4);
}

Sequence make_sequence(std::int32_t prompt, std::int32_t max_total) {
  Sequence sequence;
  sequence.tokens.assign(static_cast<std::size_t>(prompt), 1);
  sequence.num_prompt = prompt;
  sequence.max_total = max_total;
  return sequence;
}

void compute(const StepPlan& plan) {
  for (const StepShare& share : plan.shares) share.sequence->num_computed += share.num_tokens;
}

TEST(IdPool, TakesTheLowestFreeOne) {
  IdPool pool(3);
  EXPECT_EQ(pool.take(), 0);
  EXPECT_EQ(pool.take(), 1);
  pool.give_back(0);
  EXPECT_EQ(pool.take(), 0);
  EXPECT_EQ(pool.available(), 1);
}

TEST(Scheduler, LongPromptsGoInChunksAndOnlyTheLastWantsLogits) {
  KvCache cache = make_cache();
  Scheduler scheduler({.max_step_tokens = 10, .max_sequences = 2}, cache);
  Sequence sequence = make_sequence(25, 30);
  scheduler.add(sequence);
  std::vector<std::pair<std::int32_t, bool>> chunks;
  for (int i = 0; i < 3; ++i) {
    const StepPlan plan = scheduler.plan();
    ASSERT_EQ(plan.shares.size(), 1U);
    chunks.emplace_back(plan.num_tokens, plan.shares[0].wants_logits);
    compute(plan);
  }
  EXPECT_EQ(chunks, (std::vector<std::pair<std::int32_t, bool>>{{10, false}, {10, false}, {5, true}}));
  scheduler.remove(sequence);
  EXPECT_TRUE(scheduler.idle());
  EXPECT_EQ(cache.pages().available(), kPages);
}

TEST(Scheduler, DecodeRowsComeBeforePromptChunks) {
  KvCache cache = make_cache();
  Scheduler scheduler({.max_step_tokens = 8, .max_sequences = 2}, cache);
  Sequence first = make_sequence(4, 20);
  Sequence second = make_sequence(20, 24);
  scheduler.add(first);
  compute(scheduler.plan());
  first.tokens.push_back(1);
  scheduler.add(second);
  const StepPlan plan = scheduler.plan();
  ASSERT_EQ(plan.shares.size(), 2U);
  EXPECT_EQ(plan.shares[0].sequence, &first);
  EXPECT_EQ(plan.shares[0].num_tokens, 1);
  EXPECT_EQ(plan.shares[1].num_tokens, 7);
  EXPECT_EQ(plan.num_outputs, 1);
}

// Whatever comes and goes: no page is lost or owned twice, and every sequence gets through.
TEST(Scheduler, RandomTrafficLosesAndDoublesNothing) {
  KvCache cache = make_cache();
  Scheduler scheduler({.max_step_tokens = 16, .max_sequences = 3}, cache);
  std::mt19937 random(42);
  const auto pick = [&](int low, int high) { return std::uniform_int_distribution<int>(low, high)(random); };
  std::list<Sequence> alive;
  int completed = 0;
  int started = 0;
  for (int step = 0; step < 2000 || !alive.empty(); ++step) {
    if (step < 2000 && pick(0, 3) == 0) {
      const int prompt = pick(1, 40);
      alive.push_back(make_sequence(prompt, prompt + pick(1, 40)));
      scheduler.add(alive.back());
      ++started;
    }
    const StepPlan plan = scheduler.plan();
    ASSERT_LE(plan.num_tokens, 16);
    compute(plan);
    std::set<std::int32_t> owned;
    std::size_t total = 0;
    for (const Sequence& sequence : alive) {
      owned.insert(sequence.pages.begin(), sequence.pages.end());
      total += sequence.pages.size();
    }
    ASSERT_EQ(owned.size(), total);
    ASSERT_EQ(static_cast<std::int32_t>(total) + cache.pages().available(), kPages);
    for (const StepShare& share : plan.shares) {
      if (!share.wants_logits) continue;
      Sequence& sequence = *share.sequence;
      sequence.tokens.push_back(1);
      const bool done = static_cast<std::int32_t>(sequence.tokens.size()) >= sequence.max_total;
      if (!done && pick(0, 50) != 0) continue;  // a few are cancelled midway
      scheduler.remove(sequence);
      alive.remove_if([&](const Sequence& other) { return &other == &sequence; });
      ++completed;
    }
    ASSERT_LT(step, 100000) << "a sequence starves";
  }
  EXPECT_EQ(completed, started);
  EXPECT_EQ(cache.pages().available(), kPages);
  EXPECT_EQ(cache.slots().available(), 4);
}

}  // namespace
}  // namespace vernier
