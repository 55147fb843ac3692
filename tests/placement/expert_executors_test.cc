// Wherever experts live, the result is the one that a single backend computes. The device is a host backend in
// disguise: one that runs operations as late as it may, or one whose copies run as late as they may.
#include <gtest/gtest.h>

#include <functional>
#include <set>

#include "backend/packed_weight.h"
#include "placement/host_experts.h"
#include "placement/late_devices.h"
#include "placement/offload_experts.h"
#include "support/random_weight.h"

namespace vernier::test {
namespace {

constexpr std::int64_t kDim = 64;
constexpr std::int64_t kFf = 32;
constexpr std::int32_t kExperts = 6;
constexpr std::int32_t kTopK = 2;
constexpr int kAllLocks = 1 << 20;

std::unique_ptr<Backend> make_cpu() {
  return create_backend("cpu", {.precision = Precision::kF32, .num_threads = 1, .cpu_isa = "portable"}).value();
}

ExpertWeights make_bank(std::uint64_t seed, std::vector<std::vector<float>>& biases) {
  Random random(seed);
  ExpertWeights bank;
  const FormatCase format = all_format_cases().front();
  const auto weight = [&](std::int64_t rows, std::int64_t cols) {
    return random_weight({.format = format.format,
                          .layout = format.layout,
                          .rows = rows,
                          .cols = cols,
                          .row_padding = 3,
                          .seed = random.next()});
  };
  for (std::int32_t e = 0; e < kExperts; ++e) {
    bank.gate.push_back(weight(kFf, kDim));
    bank.up.push_back(weight(kFf, kDim));
    bank.down.push_back(weight(kDim, kFf));
    biases.push_back(random.floats(kFf));
    bank.gate_bias.emplace_back(biases.back());
    biases.push_back(random.floats(kDim));
    bank.down_bias.emplace_back(biases.back());
  }
  return bank;
}

/// One call for the experts of a layer, and what a backend alone makes of it.
struct Step {
  std::int32_t layer = 0;
  std::int64_t tokens = 0;
  std::vector<float> x;
  std::vector<float> before;  ///< y as it was
  std::vector<std::int32_t> ids;
  std::vector<float> weights;
  std::vector<float> expected;

  [[nodiscard]] ExpertMlpArgs args(const ExpertWeights& bank, std::vector<float>& y) const {
    ExpertMlpArgs args;
    args.x = {const_cast<float*>(x.data()), tokens, kDim, kDim};
    args.experts = &bank;
    args.top_k = kTopK;
    args.ids = ids.data();
    args.weights = weights.data();
    args.y = {y.data(), tokens, kDim, kDim};
    return args;
  }
};

/// Random steps through two layers: the same for every executor, so worked out once.
struct Steps {
  std::vector<std::vector<float>> biases;
  std::vector<ExpertWeights> banks;
  std::vector<Step> steps;

  Steps() {
    biases.reserve(static_cast<std::size_t>(4 * kExperts));
    banks = {make_bank(1, biases), make_bank(2, biases)};
    const auto alone = make_cpu();
    Random random(5);
    for (int i = 0; i < 60; ++i) {
      Step& step = steps.emplace_back();
      step.layer = i % 2;
      step.tokens = i % 12 == 0 ? 40 : i % 3 == 0 ? 20 : 1 + static_cast<std::int64_t>(random.below(3));
      step.x = random.floats(step.tokens * kDim);
      step.before = random.floats(step.tokens * kDim);
      step.weights = random.floats(step.tokens * kTopK);
      for (std::int64_t t = 0; t < step.tokens; ++t) {
        const auto first = static_cast<std::int32_t>(random.below(kExperts));
        step.ids.push_back(first);
        step.ids.push_back((first + 1 + static_cast<std::int32_t>(random.below(kExperts - 1))) % kExperts);
      }
      step.expected = step.before;
      EXPECT_TRUE(alone->expert_mlp(step.args(banks[static_cast<std::size_t>(step.layer)], step.expected)));
    }
  }
};

/// Runs the steps through `executor` and compares each with one backend alone.
void check_executor(ExpertExecutor& executor, const std::function<void(std::int64_t)>& each = {}) {
  static const Steps kAll;
  ASSERT_TRUE(executor.add_bank(0, kTopK, kAll.banks[0]));
  ASSERT_TRUE(executor.add_bank(1, kTopK, kAll.banks[1]));
  ASSERT_TRUE(executor.prepare());
  for (std::size_t step = 0; step < kAll.steps.size(); ++step) {
    const Step& wanted = kAll.steps[step];
    std::vector<float> actual = wanted.before;
    const Status status =
        executor.run(wanted.layer, wanted.args(kAll.banks[static_cast<std::size_t>(wanted.layer)], actual));
    ASSERT_TRUE(status) << status.error().message;
    if (each) each(static_cast<std::int64_t>(step));
    for (std::size_t i = 0; i < actual.size(); ++i) {
      ASSERT_NEAR(actual[i], wanted.expected[i], 2e-3) << "step " << step;
    }
  }
}

TEST(HostExperts, ComputeTheSameToTheBit) {
  QueueingDevice device(make_cpu(), Late::kWork);
  HostExpertExecutor executor(device, make_cpu());
  check_executor(executor);
}

TEST(HostExperts, StreamPromptsThroughAFewSlots) {
  for (const Late late : {Late::kWork, Late::kCopies}) {
    PlacingDevice device(make_cpu(), late);
    const std::shared_ptr<Backend> host = make_cpu();
    auto streamer = std::make_unique<OffloadExpertExecutor>(
        device, host,
        OffloadOptions{
            .num_slots = 3, .slot_bytes = std::uint64_t{1} << 30U, .store = ExpertStore::kFile, .ahead_bytes = 1});
    const OffloadExpertExecutor& used = *streamer;
    HostExpertExecutor executor(device, host, std::move(streamer));
    check_executor(executor, [&](std::int64_t step) {
      ASSERT_TRUE(device.synchronize());
      if (step == 0) {
        EXPECT_GT(used.counters().copied, 0) << "unknown lanes are tried";
      }
    });
    EXPECT_EQ(used.counters().on_host, 0);
  }
}

/// Prompts of two layers in turn, from `banks` whose experts are all chosen.
struct Prompts {
  static constexpr std::int64_t kTokens = PromptLanes::kManyRows;
  std::vector<std::vector<float>> biases;
  std::vector<ExpertWeights> banks;
  Step prompt;
  std::vector<std::vector<float>> expected;  ///< of each layer

  Prompts() {
    biases.reserve(static_cast<std::size_t>(6 * kExperts));
    for (std::uint64_t layer = 0; layer < 3; ++layer) banks.push_back(make_bank(layer + 1, biases));
    Random random(9);
    prompt.tokens = kTokens;
    prompt.x = random.floats(kTokens * kDim);
    prompt.before = random.floats(kTokens * kDim);
    prompt.weights = random.floats(kTokens * kTopK);
    for (std::int64_t t = 0; t < kTokens; ++t) {
      for (std::int32_t k = 0; k < kTopK; ++k) prompt.ids.push_back((static_cast<std::int32_t>(t) + k) % kExperts);
    }
    const auto alone = make_cpu();
    for (const ExpertWeights& bank : banks) {
      expected.push_back(prompt.before);
      EXPECT_TRUE(alone->expert_mlp(prompt.args(bank, expected.back())));
    }
  }
};

class StreamedPrompts : public testing::TestWithParam<std::tuple<Late, std::int64_t, int>> {};

TEST_P(StreamedPrompts, ComputeTheSameFromExpertsThatComeAhead) {
  static const Prompts kAll;
  const auto [late, slots, num_locks] = GetParam();
  PlacingDevice device(make_cpu(), late);
  device.num_locks_left = num_locks;
  constexpr std::uint64_t kPlenty = std::uint64_t{1} << 30U;
  {
    OffloadExpertExecutor executor(device, make_cpu(),
                                   {.num_slots = slots,
                                    .slot_bytes = kPlenty,
                                    .store = ExpertStore::kFile,
                                    .num_threads = 2,
                                    .ahead_bytes = kPlenty,
                                    .locked_bytes = kPlenty});
    for (std::int32_t layer = 0; layer < 3; ++layer) {
      ASSERT_TRUE(executor.add_bank(layer, kTopK, kAll.banks[static_cast<std::size_t>(layer)]));
    }
    ASSERT_TRUE(executor.prepare());
    for (int round = 0; round < 3; ++round) {
      for (std::size_t layer = 0; layer < 3; ++layer) {
        std::vector<float> actual = kAll.prompt.before;
        ASSERT_TRUE(executor.run(static_cast<std::int32_t>(layer), kAll.prompt.args(kAll.banks[layer], actual)));
        if (round == 0 && slots > 2 * kExperts) {
          EXPECT_EQ(device.num_sent, std::min<int>(static_cast<int>(layer) + 2, 3)) << "the next layer's are sent";
        }
        ASSERT_TRUE(device.synchronize());
        for (std::size_t i = 0; i < actual.size(); ++i) ASSERT_NEAR(actual[i], kAll.expected[layer][i], 2e-3);
      }
    }
    EXPECT_EQ(device.num_locked > 0, num_locks == kAllLocks) << "all of the weights are locked, or nothing";
    const std::size_t biases = static_cast<std::size_t>(device.num_sent) * kExperts * 2 * kRecordAlignment;
    EXPECT_EQ(device.num_staged <= biases, num_locks == kAllLocks) << "nothing else is gathered";
  }
  EXPECT_EQ(device.num_locked, 0);
}
INSTANTIATE_TEST_SUITE_P(Slots, StreamedPrompts,
                         testing::Combine(testing::Values(Late::kWork, Late::kCopies),
                                          testing::Values<std::int64_t>(kTopK, 5, kExperts, 2 * kExperts + 3),
                                          testing::Values(0, 3, kAllLocks)));

TEST(HostExperts, NeedNoSlots) {
  PlacingDevice device(make_cpu(), Late::kWork);
  const std::shared_ptr<Backend> host = make_cpu();
  HostExpertExecutor executor(device, host,
                              std::make_unique<OffloadExpertExecutor>(
                                  device, host, OffloadOptions{.slot_bytes = 1, .store = ExpertStore::kFile}));
  check_executor(executor);
}

class OffloadExperts : public testing::TestWithParam<std::tuple<Late, bool, std::int64_t, ExpertStore>> {};

TEST_P(OffloadExperts, ComputeTheSameWithAnyNumberOfSlots) {
  const auto [late, hybrid, slots, store] = GetParam();
  QueueingDevice device(make_cpu(), late);
  OffloadExpertExecutor executor(
      device, make_cpu(),
      {.hybrid = hybrid, .num_slots = slots, .slot_bytes = std::uint64_t{1} << 30U, .store = store, .num_staged = 2});
  check_executor(executor, [&](std::int64_t) { ASSERT_TRUE(device.synchronize()); });
  EXPECT_EQ(executor.num_slots(), slots);
  EXPECT_GT(executor.counters().copied, 0);
  if (slots == 2 * kExperts) {
    EXPECT_LE(executor.counters().copied, 2 * kExperts) << "with room for all, each comes once";
  } else {
    EXPECT_EQ(executor.counters().on_host > 0, hybrid);
  }
}
TEST_P(OffloadExperts, ComputeTheSameWhereTheDeviceLaysRecordsOut) {
  const auto [late, hybrid, slots, store] = GetParam();
  PlacingDevice device(make_cpu(), late);
  OffloadExpertExecutor executor(
      device, make_cpu(),
      {.hybrid = hybrid, .num_slots = slots, .slot_bytes = std::uint64_t{1} << 30U, .store = store, .num_threads = 2});
  check_executor(executor, [&](std::int64_t) { ASSERT_TRUE(device.synchronize()); });
  EXPECT_GT(executor.counters().copied, 0);
}
// Small steps are the device's, those with more experts than slots the host's, in turn.
TEST_P(OffloadExperts, ComputeTheSameWhereTheDeviceFillsSlots) {
  const auto [late, hybrid, slots, store] = GetParam();
  FillingDevice device(make_cpu(), late);
  OffloadExpertExecutor executor(
      device, make_cpu(),
      {.hybrid = hybrid, .num_slots = slots, .slot_bytes = std::uint64_t{1} << 30U, .store = store, .num_staged = 2});
  check_executor(executor, [&](std::int64_t) { ASSERT_TRUE(device.synchronize()); });
  const bool by_device = store == ExpertStore::kMemory;  // in hybrid too: no step says that it decodes
  EXPECT_EQ(executor.is_repeatable(), by_device);
  const ExpertMoves moves = executor.moves();
  EXPECT_EQ(moves.moved > executor.counters().copied, by_device);
  if (slots == 2 * kExperts && by_device) {
    EXPECT_EQ(moves.moved, 2 * kExperts) << "with room for all, each comes once";
  }
  if (slots < kExperts && by_device) {
    EXPECT_GT(executor.counters().copied, 0);
  }
}
TEST_P(OffloadExperts, ComputeTheSameWhereDeviceAndHostTakeTurns) {
  const auto [late, hybrid, slots, store] = GetParam();
  FillingDevice device(make_cpu(), late);
  OffloadExpertExecutor executor(
      device, make_cpu(),
      {.hybrid = hybrid, .num_slots = slots, .slot_bytes = std::uint64_t{1} << 30U, .store = store, .num_staged = 2});
  int repeatable = 0;
  check_executor(executor, [&](std::int64_t) {
    ASSERT_TRUE(device.synchronize());
    executor.end_step();
    executor.begin_step(1);
    repeatable += executor.is_repeatable() ? 1 : 0;
  });
  EXPECT_EQ(repeatable == 0, store == ExpertStore::kFile);
  EXPECT_EQ(repeatable == 60, store == ExpertStore::kMemory && !hybrid);
}
INSTANTIATE_TEST_SUITE_P(Sizes, OffloadExperts,
                         testing::Combine(testing::Values(Late::kWork, Late::kCopies), testing::Bool(),
                                          testing::Values<std::int64_t>(kTopK, 3, 5, 2 * kExperts),
                                          testing::Values(ExpertStore::kMemory, ExpertStore::kFile)));

// With half of the experts in slots, going through the layers again and again must find some.
TEST(OffloadExpertsPrompts, DoNotEmptyEachOthersSlots) {
  constexpr std::int32_t kLayers = 4;
  const Steps all;
  const Step& prompt = all.steps[0];
  ASSERT_EQ(prompt.tokens, 40);
  ASSERT_EQ(std::set(prompt.ids.begin(), prompt.ids.end()).size(), static_cast<std::size_t>(kExperts));
  for (const Late late : {Late::kWork, Late::kCopies}) {
    QueueingDevice device(make_cpu(), late);
    OffloadExpertExecutor executor(device, make_cpu(),
                                   {.num_slots = kLayers * kExperts / 2, .slot_bytes = std::uint64_t{1} << 30U});
    for (std::int32_t layer = 0; layer < kLayers; ++layer) ASSERT_TRUE(executor.add_bank(layer, kTopK, all.banks[0]));
    ASSERT_TRUE(executor.prepare());
    for (int round = 0; round < 4; ++round) {
      const std::int64_t before = executor.counters().hits;
      for (std::int32_t layer = 0; layer < kLayers; ++layer) {
        std::vector<float> actual = prompt.before;
        ASSERT_TRUE(executor.run(layer, prompt.args(all.banks[0], actual)));
        ASSERT_TRUE(device.synchronize());
        for (std::size_t i = 0; i < actual.size(); ++i) ASSERT_NEAR(actual[i], prompt.expected[i], 2e-3);
      }
      EXPECT_EQ(executor.counters().hits - before, round > 0 ? kExperts : 0) << "round " << round;
    }
  }
}

// A device that fills slots by itself would lose each expert before the next prompt needs it; so it's left to the host.
TEST(OffloadExpertsPrompts, AreTheHostsWhereTheyTouchMoreThanThereAreSlots) {
  constexpr std::int32_t kLayers = 4;
  const Steps all;
  const Step& prompt = all.steps[0];
  for (const std::int32_t slots : {kLayers * kExperts / 2, kLayers * kExperts}) {
    FillingDevice device(make_cpu(), Late::kCopies);
    OffloadExpertExecutor executor(device, make_cpu(), {.num_slots = slots, .slot_bytes = std::uint64_t{1} << 30U});
    for (std::int32_t layer = 0; layer < kLayers; ++layer) ASSERT_TRUE(executor.add_bank(layer, kTopK, all.banks[0]));
    ASSERT_TRUE(executor.prepare());
    const bool has_room_for_all = slots == kLayers * kExperts;
    for (int round = 0; round < 5; ++round) {
      const std::int64_t found = executor.moves().found;
      executor.begin_step(0);
      for (std::int32_t layer = 0; layer < kLayers; ++layer) {
        std::vector<float> actual = prompt.before;
        ASSERT_TRUE(executor.run(layer, prompt.args(all.banks[0], actual)));
        ASSERT_TRUE(device.synchronize());
        for (std::size_t i = 0; i < actual.size(); ++i) ASSERT_NEAR(actual[i], prompt.expected[i], 2e-3);
      }
      executor.end_step();
      const std::int64_t expected = has_room_for_all ? kLayers * kExperts : kExperts;
      if (round > 1) {
        EXPECT_GE(executor.moves().found - found, expected) << "round " << round;
      }
    }
    EXPECT_EQ(executor.counters().copied > 0, !has_room_for_all) << "which the host did";
  }
}

TEST(OffloadExpertsLimits, TooFewSlotsAreRefusedWithTheNumberNeeded) {
  QueueingDevice device(make_cpu(), Late::kWork);
  OffloadExpertExecutor executor(device, make_cpu(), {.num_slots = 1, .slot_bytes = std::uint64_t{1} << 30U});
  std::vector<std::vector<float>> biases;
  biases.reserve(static_cast<std::size_t>(2 * kExperts));
  ASSERT_TRUE(executor.add_bank(0, kTopK, make_bank(1, biases)));
  const Status status = executor.prepare();
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kInvalidArgument);
  EXPECT_NE(status.error().hint.find("--expert-cache 2"), std::string::npos) << status.error().hint;
}

}  // namespace
}  // namespace vernier::test
