// The log-probabilities that perplexity is made of, against those of the reference's logits in double precision.
#include <gtest/gtest.h>

#include <cmath>

#include "cli/logit_stats.h"
#include "cli/reference_file.h"
#include "support/test_data.h"
#include "vernier/engine.h"

namespace vernier::cli {
namespace {

std::unique_ptr<Engine> open_engine(std::int32_t score_rows) {
  EngineOptions options;
  options.model = test::test_data("zoo/llama/nvfp4");
  options.device = "cpu";
  options.precision = "f32";
  options.context = 64;
  options.score_rows = score_rows;
  auto engine = Engine::open(options);
  EXPECT_TRUE(engine) << engine.error().message;
  return engine ? std::move(*engine) : nullptr;
}

struct Text {
  ReferenceFile reference;
  std::vector<std::int32_t> ids;  ///< 64, with the reference's logits behind each
};

Text read_text() {
  auto reference = read_reference(test::test_data("zoo/llama/nvfp4.expected.json"));
  EXPECT_TRUE(reference);
  std::vector<std::int32_t> ids = reference->prompts[0].prompt_ids;
  ids.insert(ids.end(), reference->prompts[0].greedy_ids.begin(), reference->prompts[0].greedy_ids.end());
  ids.resize(64);
  return {std::move(*reference), std::move(ids)};
}

TEST(Perplexity, IsThatOfTheReferenceLogits) {
  const Text text = read_text();
  const auto engine = open_engine(16);
  ASSERT_NE(engine, nullptr);
  std::vector<double> expected;
  std::vector<double> found;
  const auto error = engine->score(
      text.ids,
      [&](std::size_t row, std::span<const float> logits) {
        if (row + 1 == text.ids.size()) return;
        const auto next = static_cast<std::size_t>(text.ids[row + 1]);
        expected.push_back(-log_softmax(text.reference.logits_of(row))[next]);
        found.push_back(-log_softmax(logits)[next]);
      },
      32);
  ASSERT_FALSE(error) << error->message;
  ASSERT_EQ(found.size(), 31U);  // rows 32 to 62 predict tokens 33 to 63
  EXPECT_NEAR(std::exp(mean_of(found).mean), std::exp(mean_of(expected).mean), 1e-5);
}

TEST(Perplexity, RowsDependNeitherOnTheFirstNorOnTheChunks) {
  const Text text = read_text();
  std::vector<std::vector<float>> whole;
  const auto engine = open_engine(64);
  ASSERT_NE(engine, nullptr);
  ASSERT_FALSE(engine->score(text.ids, [&](std::size_t row, std::span<const float> logits) {
    EXPECT_EQ(row, whole.size());
    whole.emplace_back(logits.begin(), logits.end());
  }));
  ASSERT_EQ(whole.size(), text.ids.size());
  for (const std::int32_t rows : {1, 7, 16}) {
    const auto other = open_engine(rows);
    ASSERT_NE(other, nullptr);
    for (const std::size_t first : {0U, 13U, 32U, 63U, 64U}) {
      std::size_t at = first;
      ASSERT_FALSE(other->score(
          text.ids,
          [&](std::size_t row, std::span<const float> logits) {
            EXPECT_EQ(row, at++);
            EXPECT_TRUE(std::equal(logits.begin(), logits.end(), whole[row].begin())) << row;
          },
          first));
      EXPECT_EQ(at, text.ids.size());
    }
  }
}

TEST(Perplexity, ScoreRefusesWhatDoesntFit) {
  const auto engine = open_engine(16);
  ASSERT_NE(engine, nullptr);
  const auto visit = [](std::size_t, std::span<const float>) {};
  const std::vector<std::int32_t> longer(65, 1);
  EXPECT_FALSE(engine->score(std::span(longer).first(64), visit));
  EXPECT_NE(engine->score(longer, visit)->message.find("65 tokens, the context holds 64"), std::string::npos);
  const std::int32_t outside[] = {1, 1024};
  EXPECT_NE(engine->score(outside, visit)->message.find("prompt[1]"), std::string::npos);
  EXPECT_TRUE(engine->score({}, visit).has_value());
}

}  // namespace
}  // namespace vernier::cli
