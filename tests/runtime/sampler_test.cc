#include "runtime/sampler.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

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
