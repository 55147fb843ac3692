#include "placement/routing_trace.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "placement/experts.h"

namespace vernier {
namespace {

constexpr std::string_view kTrace =
    "{\"vernier_routing_trace\":1,\"top_k\":2}\n"
    "{\"layer\":0,\"ids\":[0,1]}\n"
    "{\"layer\":0,\"ids\":[1,0,2,1]}\n"
    "{\"layer\":1,\"ids\":[0,1]}\n"
    "{\"layer\":0,\"ids\":[0,1]}\n";

TEST(RoutingTrace, ReplaysAgainstSizesAndPolicies) {
  const auto trace = parse_routing_trace(kTrace);
  ASSERT_TRUE(trace) << trace.error().message;
  EXPECT_EQ(trace->num_layers, 2);
  EXPECT_EQ(trace->num_experts, 3);
  const auto hits = [&](std::string_view policy, std::int64_t slots) {
    const auto result = replay_trace(*trace, policy, slots);
    EXPECT_TRUE(result) << result.error().message;
    EXPECT_EQ(result->uses, 9);
    return result->hits;
  };
  EXPECT_EQ(hits("lru", 6), 4);
  EXPECT_EQ(hits("lru", 1000), 4) << "more slots than experts";
  EXPECT_EQ(hits("lru", 2), 2);
  EXPECT_EQ(hits("lfu", 4), 4) << "experts used twice stay";
}

TEST(RoutingTrace, RefusesWhatIsNone) {
  for (const std::string_view text :
       {"", "\n", "{}", "{\"vernier_routing_trace\":2,\"top_k\":2}", "{\"vernier_routing_trace\":1,\"top_k\":0}",
        "{\"vernier_routing_trace\":1,\"top_k\":2}\n{\"layer\":0,\"ids\":[1]}",
        "{\"vernier_routing_trace\":1,\"top_k\":1}\n{\"layer\":0,\"ids\":[-1]}",
        "{\"vernier_routing_trace\":1,\"top_k\":1}\n{\"layer\":99999,\"ids\":[1]}",
        "{\"vernier_routing_trace\":1,\"top_k\":1}\n{\"layer\":0,\"ids\":[99999999]}",
        "{\"vernier_routing_trace\":1,\"top_k\":1}\n{\"layer\":0}", "[1]"}) {
    const auto trace = parse_routing_trace(text);
    ASSERT_FALSE(trace) << text;
  }
  const auto late = parse_routing_trace("{\"vernier_routing_trace\":1,\"top_k\":1}\n{\"layer\":0,\"ids\":[1]}\nx\n");
  ASSERT_FALSE(late);
  EXPECT_NE(late.error().message.find("line 3"), std::string::npos) << late.error().message;
  const auto trace = parse_routing_trace(kTrace);
  EXPECT_FALSE(replay_trace(*trace, "lru", 1));
  EXPECT_FALSE(replay_trace(*trace, "none", 4));
}

TEST(RoutingTrace, RecordsWhatIsRun) {
  const auto backend = create_backend("cpu", {.precision = Precision::kF32, .num_threads = 1, .cpu_isa = {}});
  ASSERT_TRUE(backend);
  auto placement = place_experts({}, **backend);
  ASSERT_TRUE(placement);
  const std::filesystem::path path = testing::TempDir() + "/trace.jsonl";
  {
    auto recorder = RecordingExpertExecutor::create(std::move(placement->executor), **backend, path);
    ASSERT_TRUE(recorder) << recorder.error().message;
    ASSERT_TRUE((*recorder)->add_bank(3, 2, {}));
    ASSERT_TRUE((*recorder)->prepare());
    const std::int32_t ids[] = {5, 1, 0, 2};
    ExpertMlpArgs args;  // no experts: the inner executor refuses, after the choice has been written
    args.x.rows = 2;
    args.top_k = 2;
    args.ids = ids;
    EXPECT_FALSE((*recorder)->run(3, args));
  }
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  const auto trace = parse_routing_trace(text.str());
  ASSERT_TRUE(trace) << text.str();
  ASSERT_EQ(trace->calls.size(), 1U);
  EXPECT_EQ(trace->calls[0].layer, 3);
  EXPECT_EQ(trace->calls[0].ids, (std::vector<std::int32_t>{5, 1, 0, 2}));
  std::filesystem::remove(path);
  EXPECT_FALSE(RecordingExpertExecutor::create(nullptr, **backend, "/no/such/folder/trace"));
}

}  // namespace
}  // namespace vernier
