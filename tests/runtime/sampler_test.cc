#include "runtime/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "backend/odds.h"
#include "backend/rank.h"
#include "runtime/random.h"

namespace vernier {
namespace {

TEST(Philox, PublishedVectors) {  // Random123's known-answer file, philox4x32 with 10 rounds
  EXPECT_EQ(philox4x32({0, 0, 0, 0}, {0, 0}),
            (std::array<std::uint32_t, 4>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox4x32({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}),
            (std::array<std::uint32_t, 4>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (std::array<std::uint32_t, 4>{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

SamplingParams greedy() {
  SamplingParams params;
  params.temperature = 0.0F;
  return params;
}

std::int32_t choose(SamplingParams params, std::vector<float> logits, std::vector<std::int32_t> prompt = {},
                    std::uint64_t position = 0) {
  Sampler sampler(std::move(params), prompt);
  const auto usable = static_cast<std::int64_t>(logits.size());
  const auto choice = sampler.choose(logits, usable, position);
  return choice ? choice->id : -1;
}

TEST(Sampler, GreedyBreaksTiesToTheLowestId) { EXPECT_EQ(choose(greedy(), {0.0F, 2.0F, 2.0F, 1.0F}), 1); }

TEST(Sampler, PaddingRowsAreNeverChosen) {
  Sampler sampler(greedy(), {});
  std::vector<float> logits = {0.0F, 1.0F, 9.0F};
  EXPECT_EQ(sampler.choose(logits, 2, 0)->id, 1);
}

TEST(Sampler, BiasBansAndFavours) {
  SamplingParams params = greedy();
  params.logit_bias = {{1, -100.0F}, {2, 3.0F}};
  EXPECT_EQ(choose(params, {0.0F, 9.0F, 0.0F}), 2);
  params.logit_bias = {{0, -100.0F}, {1, -100.0F}};
  EXPECT_EQ(choose(params, {0.0F, 9.0F}), -1);
}

TEST(Sampler, RepeatPenaltySeesThePromptOthersDoNot) {
  SamplingParams params = greedy();
  params.repeat_penalty = 2.0F;
  EXPECT_EQ(choose(params, {3.0F, 2.0F}, {0}), 1);
  params.repeat_penalty = 1.0F;
  params.presence_penalty = 2.0F;
  EXPECT_EQ(choose(params, {3.0F, 2.0F}, {0}), 0);
}

TEST(Sampler, FrequencyPenaltyCountsOutputs) {
  SamplingParams params = greedy();
  params.frequency_penalty = 0.6F;
  Sampler sampler(params, {});
  std::vector<std::int32_t> ids;
  for (std::uint64_t i = 0; i < 4; ++i) {
    std::vector<float> logits = {1.0F, 0.0F};
    ids.push_back(sampler.choose(logits, 2, i)->id);
  }
  EXPECT_EQ(ids, (std::vector<std::int32_t>{0, 0, 1, 0}));
}

TEST(Sampler, FiltersKeepWhatTheySay) {
  SamplingParams params;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    params = {};
    params.seed = seed;
    params.top_k = 1;
    EXPECT_EQ(choose(params, {0.0F, 0.1F, 0.05F}), 1);
    params = {};
    params.seed = seed;
    params.top_p = 0.5F;  // probabilities 0.66, 0.24, 0.09
    EXPECT_EQ(choose(params, {2.0F, 1.0F, 0.0F}), 0);
    params = {};
    params.seed = seed;
    params.min_p = 0.3F;  // keeps the first two
    EXPECT_NE(choose(params, {2.0F, 1.0F, 0.0F}), 2);
  }
}

TEST(Sampler, DrawsFollowTheDistributionAndNothingButSeedAndPosition) {
  std::vector<int> counts(3, 0);
  constexpr int kDraws = 20000;
  for (std::uint64_t position = 0; position < kDraws; ++position) {
    SamplingParams params;
    params.seed = 7;
    const std::int32_t id = choose(params, {std::log(0.5F), std::log(0.3F), std::log(0.2F)}, {}, position);
    ++counts[static_cast<std::size_t>(id)];
    ASSERT_EQ(id, choose(params, {std::log(0.5F), std::log(0.3F), std::log(0.2F)}, {0, 1}, position));
  }
  EXPECT_NEAR(counts[0], 0.5 * kDraws, 300);
  EXPECT_NEAR(counts[1], 0.3 * kDraws, 300);
}

TEST(Sampler, LogprobsAreThoseOfTheUntouchedLogits) {
  SamplingParams params = greedy();
  params.logprobs = 2;
  params.logit_bias = {{0, -100.0F}};
  Sampler sampler(params, {});
  std::vector<float> logits = {std::log(0.5F), std::log(0.25F), std::log(0.25F)};
  const auto choice = sampler.choose(logits, 3, 0);
  ASSERT_TRUE(choice && choice->logprob);
  EXPECT_EQ(choice->id, 1);
  EXPECT_NEAR(choice->logprob->logprob, std::log(0.25), 1e-6);
  ASSERT_EQ(choice->logprob->top.size(), 2U);
  EXPECT_EQ(choice->logprob->top[0].first, 0);
  EXPECT_EQ(choice->logprob->top[1].first, 1);
}

TEST(Sampler, NonFiniteLogitsAreAnError) {
  Sampler sampler(greedy(), {});
  std::vector<float> logits = {0.0F, std::numeric_limits<float>::quiet_NaN()};
  EXPECT_EQ(sampler.choose(logits, 2, 5).error().code, ErrorCode::kInternal);
}

/// The draw as small-decisions.md describes it, over a sorted vocabulary.
std::int32_t plain_draw(const SamplingParams& params, const std::vector<float>& logits, std::uint64_t position) {
  std::vector<RankedLogit> order;
  for (const float logit : logits) order.push_back({static_cast<std::int32_t>(order.size()), logit});
  std::sort(order.begin(), order.end(), likelier);
  if (params.top_k > 0) order.resize(std::min(order.size(), static_cast<std::size_t>(params.top_k)));
  std::vector<std::uint64_t> odds;
  for (const RankedLogit& token : order) {
    odds.push_back(odds_of(token.logit, order[0].logit, 1.0 / static_cast<double>(params.temperature)));
  }
  const auto sum = [&] {
    std::uint64_t total = 0;
    for (const std::uint64_t one : odds) total += one;
    return total;
  };
  const double share = static_cast<double>(params.top_p) * static_cast<double>(sum());
  std::uint64_t reached = 0;
  for (std::size_t i = 0; params.top_p < 1.0F && i < odds.size(); ++i) {
    reached += odds[i];
    if (static_cast<double>(reached) >= share) odds.resize(i + 1);
  }
  while (static_cast<double>(odds.back()) < static_cast<double>(params.min_p) * kTopOdds) odds.pop_back();
  const double uniform = uniform_at(params.seed, position);
  auto left = static_cast<std::int64_t>(uniform * static_cast<double>(sum()));
  std::size_t i = 0;
  for (; left >= static_cast<std::int64_t>(odds[i]); ++i) left -= static_cast<std::int64_t>(odds[i]);
  return order[i].id;
}

std::vector<SamplingParams> filters() {
  std::vector<SamplingParams> all(8);
  all[1].temperature = 0.7F;
  all[1].top_p = 0.9F;
  all[2].top_k = 40;
  all[3].top_k = 300;  // more than a ranking holds
  all[3].top_p = 0.99F;
  all[4].min_p = 0.05F;
  all[5].temperature = 3.0F;
  all[6].temperature = 0.8F;
  all[6].top_k = 5;
  all[6].top_p = 0.5F;
  all[6].min_p = 0.2F;
  all[7].temperature = 2.0F;
  all[7].top_p = 0.97F;
  all[7].min_p = 0.001F;
  for (std::size_t i = 0; i < all.size(); ++i) all[i].seed = i;
  return all;
}

// One definition for every way: a plain sort, a ranking such as devices make, and the row itself.
TEST(Sampler, RankingRowAndPlainSortChooseTheSameToken) {
  std::mt19937 random(1);
  int resolved = 0;
  int unresolved = 0;
  for (const std::size_t size : {1U, 7U, 256U, 257U, 5000U}) {
    for (const float spread : {0.0F, 0.5F, 3.0F}) {
      std::normal_distribution<float> normal(0.0F, 1.0F);
      for (const SamplingParams& params : filters()) {
        for (std::uint64_t position = 0; position < 5; ++position) {
          std::vector<float> logits(size);
          for (float& logit : logits) logit = std::round(normal(random) * spread * 64.0F) / 64.0F;  // with ties
          const std::int32_t expected = plain_draw(params, logits, position);
          Sampler sampler(params, {});
          const Sampler::Needs needs = sampler.needs();
          std::vector<RankedLogit> entries(static_cast<std::size_t>(needs.count));
          const RankedRow row = rank_row(logits, needs.wish, entries);
          entries.resize(static_cast<std::size_t>(row.num_entries));
          const auto from_ranking = sampler.choose({row, entries, static_cast<std::int64_t>(size)}, position);
          ASSERT_TRUE(from_ranking);
          ++(*from_ranking ? resolved : unresolved);
          if (*from_ranking) {
            ASSERT_EQ((*from_ranking)->id, expected);
          }
          ASSERT_EQ(sampler.choose(logits, static_cast<std::int64_t>(size), position)->id, expected);
        }
      }
    }
  }
  EXPECT_GT(resolved, 400);
  EXPECT_GT(unresolved, 40);
}

TEST(Sampler, AShortRankingIsEnoughForTheLikeliestOnly) {
  SamplingParams params = greedy();
  const RankedLogit first{17, 2.0F};
  const Ranking ranking{{0, std::uint64_t{1} << 42U, 1, 1}, std::span(&first, 1), 1000};
  EXPECT_EQ((*Sampler(params, {}).choose(ranking, 0))->id, 17);
  params.logprobs = 0;
  const auto choice = Sampler(params, {}).choose(ranking, 0);
  EXPECT_NEAR((*choice)->logprob->logprob, -3.0 * std::log(2.0), 1e-6);
  params.logprobs = 2;
  EXPECT_FALSE(*Sampler(params, {}).choose(ranking, 0));
  EXPECT_FALSE(Sampler(params, {}).choose({{}, {}, 1000}, 0));  // not finite
}

TEST(Sampler, WhatChangesLogitsNeedsTheRow) {
  EXPECT_FALSE(Sampler(greedy(), {}).needs_row());
  for (int i = 0; i < 5; ++i) {
    SamplingParams params;
    if (i == 0) params.logit_bias = {{0, 1.0F}};
    if (i == 1) params.repeat_penalty = 1.1F;
    if (i == 2) params.presence_penalty = 0.1F;
    if (i == 3) params.frequency_penalty = 0.1F;
    if (i == 4) params.top_k = kMostRanked + 1;
    EXPECT_TRUE(Sampler(params, {}).needs_row()) << i;
  }
}

TEST(Sampler, BannedTokensAreNeverDrawn) {
  SamplingParams params;
  params.temperature = 100.0F;
  params.repeat_penalty = 100.0F;  // of a token that is banned as well
  params.logit_bias = {{0, -100.0F}, {2, -1000.0F}};
  for (std::uint64_t position = 0; position < 100; ++position) {
    EXPECT_EQ(choose(params, {50.0F, -1.0F, 40.0F}, {0}, position), 1);
  }
}

TEST(Sampler, PromptTokensMayBePadding) {
  SamplingParams params = greedy();
  params.repeat_penalty = 2.0F;
  params.logit_bias = {{2, 5.0F}};
  Sampler sampler(params, std::vector<std::int32_t>{1, 2});
  std::vector<float> logits = {2.0F, 3.0F, 9.0F};
  EXPECT_EQ(sampler.choose(logits, 2, 0)->id, 0);
  EXPECT_EQ(logits[2], 9.0F);
}

TEST(Sampler, NonFiniteLogitsAreAnErrorWhateverChangesThem) {
  SamplingParams params;
  params.logit_bias = {{0, -100.0F}};
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    Sampler sampler(params, {});
    std::vector<float> logits = {bad, 0.0F};
    EXPECT_EQ(sampler.choose(logits, 2, 5).error().code, ErrorCode::kInternal);
  }
}

TEST(SamplingParams, RangesAreChecked) {
  const auto bad = [](auto change) {
    SamplingParams params;
    change(params);
    const auto error = validate(params, 100);
    return error ? error->message : std::string();
  };
  static constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(bad([](SamplingParams&) {}), "");
  EXPECT_NE(bad([](SamplingParams& p) { p.temperature = -1.0F; }), "");
  EXPECT_NE(bad([](SamplingParams& p) { p.temperature = kNan; }), "");
  EXPECT_NE(bad([](SamplingParams& p) { p.top_p = 0.0F; }), "");
  EXPECT_NE(bad([](SamplingParams& p) { p.top_p = 1.1F; }), "");
  EXPECT_NE(bad([](SamplingParams& p) { p.top_k = -5; }), "");
  EXPECT_NE(bad([](SamplingParams& p) { p.min_p = 2.0F; }), "");
  EXPECT_NE(bad([](SamplingParams& p) { p.logprobs = 21; }), "");
  EXPECT_NE(bad([](SamplingParams& p) { p.stop = {""}; }), "");
  EXPECT_NE(bad([](SamplingParams& p) { p.logit_bias = {{100, 0.0F}}; }), "");
  EXPECT_NE(bad([](SamplingParams& p) { p.logit_bias = {{1, kNan}}; }), "");
  EXPECT_NE(bad([](SamplingParams& p) { p.max_tokens = -2; }), "");
}

}  // namespace
}  // namespace vernier
