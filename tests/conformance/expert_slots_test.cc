// Slots that a device fills by itself: the results are those of experts that were placed, and the books say what a
// plain model of them says, whatever the cache's size, and whoever used a slot before.
#include "backend/expert_slots.h"

#include <gtest/gtest.h>

#include <cstring>

#include "backend/packed_weight.h"
#include "support/backends.h"
#include "support/random_weight.h"
#include "support/slot_model.h"
#include "support/under_tool.h"

namespace vernier::test {
namespace {

constexpr std::int32_t kLayers = 3;

/// Banks of a shape: as stored, placed, and in records of host memory.
class Experts {
 public:
  struct Shape {
    FormatCase format;
    std::int32_t experts = 0;
    std::int64_t dim = 0;
    std::int64_t ff = 0;
    OuterKind outer = OuterKind::kNone;
    bool has_biases = false;
  };

  Experts(Backend& backend, const Shape& shape) : backend_(backend), shape_(shape), setups_(kLayers), placed_(kLayers) {
    for (std::int32_t layer = 0; layer < kLayers; ++layer) {
      if (layer != 1) add_layer(static_cast<std::size_t>(layer));  // a layer may have no experts
    }
  }

  [[nodiscard]] const ExpertWeights& placed(std::int32_t layer) const {
    return placed_[static_cast<std::size_t>(layer)];
  }
  [[nodiscard]] const ExpertSlotsSetup::Record& record(std::int32_t layer, std::int32_t expert) const {
    return setups_[static_cast<std::size_t>(layer)].records[static_cast<std::size_t>(expert)];
  }
  [[nodiscard]] std::uint64_t slot_bytes() const { return slot_bytes_; }

  [[nodiscard]] std::unique_ptr<ExpertSlots> make_slots(std::int32_t count) {
    slots_ = backend_.allocate(static_cast<std::size_t>(count) * slot_bytes_).value();
    auto made = dynamic_cast<ExpertSlotDevice&>(backend_).create_expert_slots(
        {.banks = setups_, .slots = slot(0), .slot_bytes = slot_bytes_, .num_slots = count});
    EXPECT_TRUE(made) << made.error().message;
    return made ? *std::move(made) : nullptr;
  }
  [[nodiscard]] std::byte* slot(std::int32_t number) const {
    return static_cast<std::byte*>(slots_.data()) + static_cast<std::size_t>(number) * slot_bytes_;
  }

 private:
  void add_layer(std::size_t layer) {
    for (std::int32_t e = 0; e < shape_.experts; ++e) {
      const Weight weights[] = {random(shape_.ff, shape_.dim), random(shape_.ff, shape_.dim),
                                random(shape_.dim, shape_.ff)};
      const std::vector<float> bias = Random(++seed_).floats(shape_.ff);
      std::uint64_t size = shape_.has_biases ? align_record(bias.size() * 4) : 0;
      for (const Weight& weight : weights) size += backend_.record_bytes(weight);
      slot_bytes_ = std::max(slot_bytes_, size);
      records_.push_back(backend_.allocate_host(size).value());
      auto* to = static_cast<std::byte*>(records_.back().data());
      ExpertSlotsSetup::Bank& bank = setups_[layer];
      bank.records.push_back({to, size});
      ExpertWeights& placed = placed_[layer];
      std::vector<Weight>* const packed_to[] = {&bank.experts.gate, &bank.experts.up, &bank.experts.down};
      std::vector<Weight>* const placed_to[] = {&placed.gate, &placed.up, &placed.down};
      for (std::size_t i = 0; i < 3; ++i) {
        packed_to[i]->push_back(backend_.pack(weights[i], to).value());
        placed_to[i]->push_back(backend_.place(weights[i]).value());
        to += backend_.record_bytes(weights[i]);
      }
      if (!shape_.has_biases) continue;
      std::memcpy(to, bias.data(), bias.size() * 4);
      bank.experts.gate_bias.emplace_back(reinterpret_cast<const float*>(to), bias.size());
      placed_biases_.emplace_back(backend_, bias);
      placed.gate_bias.push_back(placed_biases_.back().span());
    }
  }
  [[nodiscard]] Weight random(std::int64_t rows, std::int64_t cols) {
    return random_weight({.format = shape_.format.format,
                          .layout = shape_.format.layout,
                          .rows = rows,
                          .cols = cols,
                          .outer = shape_.outer,
                          .seed = ++seed_});
  }

  Backend& backend_;
  Shape shape_;
  std::uint64_t seed_ = 0;
  std::uint64_t slot_bytes_ = 0;
  std::vector<Buffer> records_;
  std::vector<TestVector> placed_biases_;
  std::vector<ExpertSlotsSetup::Bank> setups_;
  std::vector<ExpertWeights> placed_;
  Buffer slots_;
};

class ExpertSlotsConformance : public BackendFixture {
 protected:
  void SetUp() override {
    BackendFixture::SetUp();
    if (!IsSkipped() && dynamic_cast<ExpertSlotDevice*>(backend_.get()) == nullptr) GTEST_SKIP() << "has no such slots";
  }

  /// Distinct experts for each token; now and then one that isn't there.
  static std::vector<std::int32_t> choose(Random& random, std::int64_t tokens, std::int32_t top_k,
                                          std::int32_t experts) {
    std::vector<std::int32_t> ids;
    for (std::int64_t t = 0; t < tokens; ++t) {
      const auto first = random.below(static_cast<std::uint64_t>(experts));
      const auto step = 1 + random.below(static_cast<std::uint64_t>(experts / top_k));
      for (std::int32_t j = 0; j < top_k; ++j) {
        const auto id = (first + static_cast<std::uint64_t>(j) * step) % static_cast<std::uint64_t>(experts);
        ids.push_back(random.below(40) == 0 ? -1 : static_cast<std::int32_t>(id));
      }
    }
    return ids;
  }

  /// The layer's output for random tokens by the slots and by experts that were placed.
  void expect_same(ExpertSlots& slots, const Experts& experts, std::int32_t layer, std::int32_t top_k,
                   const std::vector<std::int32_t>& ids) {
    const std::int64_t tokens = std::ssize(ids) / top_k;
    const ExpertWeights& placed = experts.placed(layer);
    Random random(static_cast<std::uint64_t>(tokens));
    const TestMatrix x(*backend_, tokens, placed.gate[0].cols, random.floats(tokens * placed.gate[0].cols));
    const std::vector<float> y = random.floats(tokens * placed.down[0].rows);
    const TestMatrix expected(*backend_, tokens, placed.down[0].rows, y);
    const TestMatrix actual(*backend_, tokens, placed.down[0].rows, y);
    const TestVector weights(*backend_, random.floats(std::ssize(ids)));
    const Buffer device_ids = backend_->allocate(ids.size() * 4).value();
    VN_EXPECT_OK(backend_->copy_to_device(device_ids.data(), ids.data(), ids.size() * 4));
    ExpertMlpArgs args;
    args.x = x.view();
    args.experts = &placed;
    args.top_k = top_k;
    args.ids = static_cast<const std::int32_t*>(device_ids.data());
    args.weights = weights.span().data();
    args.y = expected.view();
    VN_EXPECT_OK(backend_->expert_mlp(args));
    args.y = actual.view();
    VN_EXPECT_OK(slots.expert_mlp(layer, args));
    EXPECT_EQ(actual.read(), expected.read());
  }

  /// The host's way: what would leave next gets an expert, or what is there is used again.
  void use_by_host(ExpertSlots& slots, const Experts& experts, SlotModel& model, SlotExpert what) {
    what.slot = model.slot_of(what.layer, what.expert);
    if (what.slot < 0) {
      what.slot = model.next_victim().slot;
      const ExpertSlotsSetup::Record& record = experts.record(what.layer, what.expert);
      VN_EXPECT_OK(backend_->copy_to_device(experts.slot(what.slot), record.data, record.size_bytes));
    }
    model.use(what);
    VN_EXPECT_OK(slots.record_uses(std::span(&what, 1)));
  }

  struct Trace {
    std::int32_t experts = 0;
    std::int32_t top_k = 0;
    std::int32_t num_slots = 0;
    std::int64_t most_tokens = 1;
    int steps = 0;
  };
  /// Random steps of the device and now and then of the host, held against the model.
  void check_trace(Experts& experts, const Trace& trace) {
    const auto slots = experts.make_slots(trace.num_slots);
    if (slots == nullptr) GTEST_SKIP() << "the system grants no page-locked memory";
    SlotModel model(trace.num_slots);
    Random random(static_cast<std::uint64_t>(trace.num_slots));
    ExpertSlots::Counters expected;
    for (int step = 0; step < trace.steps && !HasFailure(); ++step) {
      const auto layer = static_cast<std::int32_t>(random.below(2)) * 2;
      const auto tokens = 1 + static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(trace.most_tokens)));
      const std::vector<std::int32_t> ids = choose(random, tokens, trace.top_k, trace.experts);
      expect_same(*slots, experts, layer, trace.top_k, ids);
      for (const SlotModel::Admission& admission : model.admit(layer, ids, trace.experts)) {
        ++(admission.found ? expected.found : expected.moved);
        if (!admission.found) expected.moved_bytes += experts.record(layer, admission.at.expert).size_bytes;
      }
      if (step % 5 == 0) {
        const auto expert = static_cast<std::int32_t>(random.below(static_cast<std::uint64_t>(trace.experts)));
        use_by_host(*slots, experts, model, {0, 2 - layer, expert});
      }
      const auto residents = slots->residents();
      ASSERT_TRUE(residents) << residents.error().message;
      EXPECT_EQ(*residents, model.residents()) << "step " << step;
    }
    const auto counters = slots->counters();
    ASSERT_TRUE(counters) << counters.error().message;
    EXPECT_EQ(counters->found, expected.found);
    EXPECT_EQ(counters->moved, expected.moved);
    EXPECT_EQ(counters->moved_bytes, expected.moved_bytes);
  }
  /// A trace with 40 experts, four a token.
  void check_traces(std::int32_t num_slots, std::int64_t most_tokens, int steps) {
    Experts experts(*backend_,
                    {.format = all_format_cases().front(), .experts = 40, .dim = 64, .ff = 64, .has_biases = true});
    check_trace(experts, {40, 4, num_slots, most_tokens, steps});
  }
  /// Every fourth format, from number `first` on.
  void check_formats(std::size_t first) {
    const std::vector<FormatCase> formats = all_format_cases();
    for (std::size_t i = first; i < formats.size(); i += 4) {
      const FormatCase& format = formats[i];
      for (const OuterKind outer : {OuterKind::kScalar, OuterKind::kPerRow}) {
        if (is_under_racecheck() && (outer == OuterKind::kPerRow) != (i % 8 < 4)) continue;
        const std::int64_t size =
            std::max<std::int64_t>(format.cols_multiple, 64) * (format.cols_multiple < 128 ? 3 : 1);
        Experts experts(*backend_,
                        {.format = format, .experts = 6, .dim = size, .ff = size, .outer = outer, .has_biases = true});
        check_trace(experts, {6, 2, 6, 20, 6});
        check_trace(experts, {6, 2, 2, 1, 6});
      }
    }
  }
};

// Random traces, a test each so that they can run at the same time. In the first and third there are so many steps that
// the order of uses is written anew (slot_kernels.h).
TEST_P(ExpertSlotsConformance, TracesOfOneToken) { check_traces(4, 1, repetitions(3500, 60)); }
TEST_P(ExpertSlotsConformance, TracesOfFewTokens) { check_traces(12, 3, repetitions(600, 40)); }
TEST_P(ExpertSlotsConformance, TracesWithSlotsForALayer) { check_traces(40, 20, repetitions(600, 40)); }
TEST_P(ExpertSlotsConformance, TracesWithSlotsForAll) { check_traces(80, 128, repetitions(60, 12)); }

/// So many uses that their order is written anew, in few operations.
TEST_P(ExpertSlotsConformance, UsesByTheHostInAnyOrder) {
  Experts experts(*backend_, {.format = all_format_cases().front(), .experts = 40, .dim = 64, .ff = 64});
  const auto slots = experts.make_slots(80);
  if (slots == nullptr) GTEST_SKIP() << "the system grants no page-locked memory";
  SlotModel model(80);
  Random random(5);
  const std::vector<std::int32_t> ids = choose(random, 60, 4, 40);
  for (const std::int32_t layer : {0, 2}) {
    expect_same(*slots, experts, layer, 4, ids);
    model.admit(layer, ids, 40);
  }
  for (int call = 0; call < 100; ++call) {
    std::vector<SlotExpert> uses = model.residents();
    for (std::size_t i = 1; i < uses.size(); ++i) std::swap(uses[i], uses[random.below(i + 1)]);
    for (const SlotExpert& use : uses) model.use(use);
    VN_EXPECT_OK(slots->record_uses(uses));
    if (call % 20 != 19) continue;
    const auto residents = slots->residents();
    ASSERT_TRUE(residents) << residents.error().message;
    ASSERT_EQ(*residents, model.residents()) << "call " << call;
  }
  expect_same(*slots, experts, 2, 4, choose(random, 3, 4, 40));
}

TEST_P(ExpertSlotsConformance, MoreExpertsThanThreadsLookAtOnce) {
  constexpr std::int32_t kExperts = 1100;
  const FormatCase format = all_format_cases().front();
  Experts experts(*backend_, {.format = format, .experts = kExperts, .dim = 32, .ff = 32});
  check_trace(experts, {kExperts, 8, 900, 100, repetitions(40, 10)});
}

// A test for each fourth of the formats, likewise.
TEST_P(ExpertSlotsConformance, EveryFormatMovesFrom0) { check_formats(0); }
TEST_P(ExpertSlotsConformance, EveryFormatMovesFrom1) { check_formats(1); }
TEST_P(ExpertSlotsConformance, EveryFormatMovesFrom2) { check_formats(2); }
TEST_P(ExpertSlotsConformance, EveryFormatMovesFrom3) { check_formats(3); }

TEST_P(ExpertSlotsConformance, TurnsAreCounted) {
  const FormatCase format = all_format_cases().front();
  Experts experts(*backend_, {.format = format, .experts = 6, .dim = 32, .ff = 32});
  const auto slots = experts.make_slots(4);
  if (slots == nullptr) GTEST_SKIP() << "the system grants no page-locked memory";
  const auto turn = [&] {
    std::uint32_t value = 0;
    VN_EXPECT_OK(backend_->copy_to_host(&value, slots->turn(), sizeof(value)));
    return value;
  };
  const std::uint32_t before = turn();
  expect_same(*slots, experts, 0, 2, {0, 1});
  EXPECT_NE(turn(), before);
  const std::uint32_t after = turn();
  const SlotExpert use = {0, 0, 0};
  VN_EXPECT_OK(slots->record_uses(std::span(&use, 1)));
  EXPECT_EQ(turn(), after);
}

INSTANTIATE_TEST_SUITE_P(All, ExpertSlotsConformance, testing::ValuesIn(all_backends()),
                         [](const auto& parameter) { return parameter.param.name(); });

}  // namespace
}  // namespace vernier::test
