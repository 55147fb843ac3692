#include "placement/slot_cache.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

#include "support/random_weight.h"

namespace vernier::test {
namespace {

SlotCache make_cache(std::string_view policy, std::int32_t slots) {
  auto created = create_eviction_policy(policy, slots);
  EXPECT_TRUE(created) << created.error().message;
  return SlotCache(4, 8, slots, std::move(*created));
}

/// Admits and lets go at once.
bool use(SlotCache& cache, std::int32_t layer, std::int32_t expert,
         SlotCache::Coming coming = SlotCache::Coming::kToStay) {
  const SlotCache::Admission admission = cache.admit(layer, expert, coming);
  cache.unpin(admission.slot);
  return admission.hit;
}

TEST(SlotCache, PoliciesGiveUpWhatTheySay) {
  SlotCache lru = make_cache("lru", 2);
  SlotCache fifo = make_cache("fifo", 2);
  SlotCache lfu = make_cache("lfu", 2);
  for (SlotCache* cache : {&lru, &fifo, &lfu}) {
    EXPECT_FALSE(use(*cache, 0, 0));
    EXPECT_FALSE(use(*cache, 0, 1));
    EXPECT_TRUE(use(*cache, 0, 0));
    EXPECT_FALSE(use(*cache, 1, 0));  // the same expert of another layer is another expert
  }
  EXPECT_TRUE(lru.find(0, 0)) << "used last";
  EXPECT_FALSE(fifo.find(0, 0)) << "came first";
  EXPECT_TRUE(lfu.find(0, 0)) << "used twice";
}

TEST(SlotCache, PinnedExpertsStay) {
  for (const char* policy : {"lru", "fifo", "lfu"}) {
    SlotCache cache = make_cache(policy, 3);
    const std::int32_t first = cache.admit(0, 0).slot;
    cache.admit(0, 1);
    EXPECT_EQ(cache.num_pinned(), 2);
    for (std::int32_t expert = 2; expert < 8; ++expert) use(cache, 0, expert);
    EXPECT_EQ(cache.find(0, 0), first) << policy;
    EXPECT_TRUE(cache.find(0, 1)) << policy;
    cache.unpin(first);
    cache.unpin(first);  // twice is as good as once
    EXPECT_EQ(cache.num_pinned(), 1);
    for (std::int32_t expert = 2; expert < 5; ++expert) use(cache, 1, expert);
    EXPECT_FALSE(cache.find(0, 0)) << policy;
    EXPECT_TRUE(cache.find(0, 1)) << policy;
  }
}

TEST(SlotCache, NeverGivesASlotToTwoExperts) {
  for (const char* policy : {"lru", "fifo", "lfu"}) {
    SlotCache cache = make_cache(policy, 5);
    Random random(3);
    for (int i = 0; i < 2000; ++i) {
      const auto coming = random.below(2) == 0 ? SlotCache::Coming::kToStay : SlotCache::Coming::kPassing;
      use(cache, static_cast<std::int32_t>(random.below(4)), static_cast<std::int32_t>(random.below(8)), coming);
      std::set<std::int32_t> slots;
      std::size_t present = 0;
      for (std::int32_t layer = 0; layer < 4; ++layer) {
        for (std::int32_t expert = 0; expert < 8; ++expert) {
          if (const auto slot = cache.find(layer, expert)) {
            slots.insert(*slot);
            ++present;
          }
        }
      }
      ASSERT_EQ(slots.size(), present);
      ASSERT_LE(present, 5U);
    }
  }
}

/// Experts found by going through four layers of eight, one layer pinned at a time.
int sweep(SlotCache& cache, SlotCache::Coming coming) {
  int found = 0;
  for (std::int32_t layer = 0; layer < 4; ++layer) {
    std::vector<std::int32_t> slots;
    for (std::int32_t expert = 0; expert < 8; ++expert) {
      const SlotCache::Admission admission = cache.admit(layer, expert, coming);
      found += admission.hit ? 1 : 0;
      slots.push_back(admission.slot);
    }
    for (const std::int32_t slot : slots) cache.unpin(slot);
  }
  return found;
}

TEST(SlotCache, ThoseThatPassLeaveTheOthersTheirSlots) {
  for (const char* policy : {"lru", "fifo", "lfu"}) {
    SlotCache cache = make_cache(policy, 16);
    EXPECT_EQ(sweep(cache, SlotCache::Coming::kPassing), 0);
    for (int round = 0; round < 5; ++round) {
      EXPECT_EQ(sweep(cache, SlotCache::Coming::kPassing), 8) << policy << ": a layer's slots serve all that pass";
    }
    use(cache, 0, 0);
    EXPECT_TRUE(cache.find(0, 0)) << policy;
    for (std::int32_t expert = 0; expert < 8; ++expert) {
      EXPECT_TRUE(cache.find(1, expert)) << policy << ": also one that comes to stay takes such a slot";
    }
  }
  for (const char* policy : {"lru", "fifo"}) {
    SlotCache cache = make_cache(policy, 16);
    for (int round = 0; round < 5; ++round) {
      EXPECT_EQ(sweep(cache, SlotCache::Coming::kToStay), 0) << policy << ": each goes before it is needed again";
    }
  }
}

TEST(SlotCache, UnknownPoliciesListTheKnownOnes) {
  const auto created = create_eviction_policy("belady", 2);
  ASSERT_FALSE(created);
  EXPECT_EQ(created.error().code, ErrorCode::kInvalidArgument);
  EXPECT_NE(created.error().message.find("lru, fifo, lfu"), std::string::npos);
}

TEST(SlotCache, FilledSlotsLeaveInTheOrderOfFilling) {
  SlotCache cache(2, 8, 3, create_eviction_policy("lru", 3).value());
  cache.fill(1, 0, 5);
  cache.fill(0, 1, 2);
  EXPECT_EQ(cache.find(0, 5), 1);
  const auto admit = [&](std::int32_t layer, std::int32_t expert) {
    const SlotCache::Admission admission = cache.admit(layer, expert);
    cache.unpin(admission.slot);
    return admission;
  };
  EXPECT_EQ(admit(0, 7).slot, 2) << "the empty one";
  EXPECT_EQ(admit(0, 6).slot, 1);
  EXPECT_EQ(admit(0, 1).slot, 0);
  EXPECT_FALSE(cache.find(1, 2));
  EXPECT_TRUE(admit(0, 7).hit);
}

}  // namespace
}  // namespace vernier::test
