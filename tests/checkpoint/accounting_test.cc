// The account of a checkpoint: used, ignored for a reason, unknown, missing, used twice or in part.
#include <chrono>

#include "checkpoint/resolve_support.h"

namespace vernier::test {
namespace {

TEST(Accounting, IgnoreRules) {
  EXPECT_TRUE(matches_ignore_pattern("vision.*", "vision.a.b"));
  EXPECT_TRUE(matches_ignore_pattern("a.{n}.k", "a.123.k"));
  EXPECT_TRUE(matches_ignore_pattern("a.{n}.*", "a.1.k.weight"));
  EXPECT_FALSE(matches_ignore_pattern("a.{n}.k", "a..k"));
  EXPECT_FALSE(matches_ignore_pattern("a.{n}.k", "a.1.k.weight"));
  EXPECT_FALSE(matches_ignore_pattern("a", "ab"));
  EXPECT_FALSE(matches_ignore_pattern("ab", "a"));

  TestCheckpoint checkpoint;
  checkpoint.zeros("a.weight", "BF16", {2, 2});
  checkpoint.zeros("vision.0.weight", "BF16", {2, 2});
  checkpoint.zeros("vision.0.weight_scale", "F32", {});
  checkpoint.zeros("a.k_scale", "F32", {});
  checkpoint.zeros("a.input_scale", "F32", {});
  checkpoint.ignore = {{"vision.*", "vision"}};
  checkpoint.want("a", 2, 2);
  const auto resolved = checkpoint.resolve();
  ASSERT_TRUE(resolved) << resolved.error().message;
  EXPECT_EQ(resolved->accounting().total, 5U);
  EXPECT_EQ(resolved->accounting().used, 1U);
  EXPECT_EQ(resolved->accounting().ignored,
            (std::map<std::string, std::uint64_t>{{"input-scale", 1}, {"kv-scale", 1}, {"vision", 2}}));
  EXPECT_TRUE(resolved->accounting().problems.empty());
}

TEST(Accounting, UnknownTensorsAreRefusedUnlessLenient) {
  TestCheckpoint checkpoint;
  checkpoint.zeros("a.weight", "BF16", {2, 2});
  checkpoint.zeros("a.lora_A.weight", "BF16", {2, 2});
  checkpoint.want("a", 2, 2);
  EXPECT_TRUE(is_refused(checkpoint, {"'a.lora_A.weight'", "unknown", "--lenient"}));
  EXPECT_TRUE(fails_with(checkpoint.load(), {"'a.lora_A.weight'"}));
  checkpoint.lenient = true;
  const auto resolved = checkpoint.resolve();
  ASSERT_TRUE(resolved);
  EXPECT_EQ(resolved->accounting().ignored.at("unknown"), 1U);
  ASSERT_EQ(resolved->accounting().warnings.size(), 1U);
  EXPECT_NE(resolved->accounting().warnings[0].find("a.lora_A.weight"), std::string::npos);
  EXPECT_TRUE(checkpoint.load());
}

TEST(Accounting, AllMissingTensorsInOneError) {
  TestCheckpoint checkpoint;
  checkpoint.zeros("model.layers.0.q.weight", "BF16", {2, 4});
  for (int i = 0; i < 13; ++i) {
    const std::string rest = "layers." + std::to_string(i) + ".q";
    checkpoint.specs.push_back(matrix_spec(rest, {2, 4}, {{"language_model." + rest}, {"model." + rest}}));
  }
  EXPECT_TRUE(is_refused(checkpoint, {"12 tensors are missing", "'model.layers.1.q.weight' [2, 4]",
                                      "'model.layers.10.q.weight'", "and 2 more"}));
  const auto resolved = checkpoint.resolve();
  ASSERT_TRUE(resolved);
  EXPECT_EQ(resolved->accounting().problems.size(), 1U);
  EXPECT_TRUE(resolved->has("layers.0.q"));
  EXPECT_FALSE(resolved->has("layers.1.q"));
}

TEST(Accounting, MissingExpertsAreNamed) {
  TestCheckpoint checkpoint;
  for (const int e : {1, 2, 4}) checkpoint.zeros("e." + std::to_string(e) + ".up.weight", "BF16", {1, 16});
  checkpoint.specs = {
      matrix_spec("up", {4, 1, 16}, {{"e.{e}.up", StoredAs::kPerExpert, true}, {"e.up", StoredAs::kWhole, false}})};
  EXPECT_TRUE(is_refused(checkpoint, {"2 tensors are missing", "'e.0.up.weight' [1, 16]", "'e.3.up.weight' [1, 16]"}));
  // One expert too many is unknown.
  const auto resolved = checkpoint.resolve();
  ASSERT_TRUE(resolved);
  ASSERT_EQ(resolved->accounting().problems.size(), 2U);
  EXPECT_NE(resolved->accounting().problems[1].message.find("e.4.up.weight"), std::string::npos);
}

TEST(Accounting, OptionalTensorsMayBeAbsent) {
  TestCheckpoint checkpoint;
  checkpoint.zeros("a.weight", "BF16", {2, 2});
  checkpoint.want("a", 2, 2);
  checkpoint.want("b", 2, 2);
  checkpoint.specs[1].required = false;
  EXPECT_TRUE(is_accepted(checkpoint));
  const auto weights = checkpoint.load();
  ASSERT_TRUE(weights);
  EXPECT_TRUE(weights->has("a"));
  EXPECT_FALSE(weights->has("b"));
  EXPECT_FALSE(weights->matrix("b"));
}

TEST(Accounting, MtpIsAllOrNothing) {
  TestCheckpoint checkpoint;
  checkpoint.zeros("a.weight", "BF16", {2, 2});
  checkpoint.want("a", 2, 2);
  for (const char* name : {"mtp.x", "mtp.y"}) {
    checkpoint.want(name, 2, 2);
    checkpoint.specs.back().mtp = true;
  }
  EXPECT_TRUE(is_accepted(checkpoint));
  checkpoint.zeros("mtp.x.weight", "BF16", {2, 2});
  EXPECT_TRUE(is_refused(checkpoint, {"1 tensor is missing", "'mtp.y.weight'"}));
}

TEST(Accounting, TwoSpellingsOfOneRole) {
  TestCheckpoint checkpoint;
  checkpoint.zeros("model.a.weight", "BF16", {2, 2});
  checkpoint.zeros("a.weight", "BF16", {2, 2});
  checkpoint.specs = {matrix_spec("a", {2, 2}, {{"model.a"}, {"a"}})};
  EXPECT_TRUE(is_refused(checkpoint, {"'a.weight'", "'model.a.weight'", "both"}));
}

TEST(Accounting, EverySliceIsUsedExactlyOnce) {
  TestCheckpoint checkpoint;
  checkpoint.zeros("ab", "BF16", {1, 4, 2});
  checkpoint.specs = {matrix_spec("a", {1, 2, 2}, {{"ab", StoredAs::kFirstHalf, false}})};
  EXPECT_TRUE(is_refused(checkpoint, {"'ab'", "in part only"}));
  checkpoint.specs.push_back(matrix_spec("b", {1, 2, 2}, {{"ab", StoredAs::kFirstHalf, false}}));
  EXPECT_TRUE(is_refused(checkpoint, {"'ab'", "used twice"}));
  checkpoint.specs.back().spellings[0].stored_as = StoredAs::kOddRows;
  EXPECT_TRUE(is_refused(checkpoint, {"'ab'", "used twice"}));
  checkpoint.specs.back().spellings[0].stored_as = StoredAs::kSecondHalf;
  EXPECT_TRUE(is_accepted(checkpoint));
}

TEST(Accounting, TiedHeadThatRepeatsTheEmbedding) {
  TestCheckpoint checkpoint;
  checkpoint.file.tensor("embed.weight", "BF16", {2, 2}, bf16({1, 2, 3, 4}));
  auto& head = checkpoint.file.tensor("lm_head.weight", "BF16", {2, 2}, bf16({1, 2, 3, 4}));
  checkpoint.specs = {matrix_spec("head", {2, 2}, {{"lm_head"}}, TensorKind::kHead),
                      matrix_spec("embed", {2, 2}, {{"embed"}}, TensorKind::kEmbedding)};
  checkpoint.specs[0].required = false;
  checkpoint.specs[0].tied_to = "embed";
  auto resolved = checkpoint.resolve();
  ASSERT_TRUE(resolved) << resolved.error().message;
  EXPECT_EQ(resolved->accounting().ignored.at("tied-head"), 1U);
  EXPECT_EQ(resolved->accounting().parameters, 4U);
  EXPECT_FALSE(resolved->has("head"));
  auto weights = load(*resolved, {});
  ASSERT_TRUE(weights);
  EXPECT_FALSE(weights->has("head"));

  head.data = bf16({1, 2, 3, 5});
  resolved = checkpoint.resolve();
  ASSERT_TRUE(resolved);
  EXPECT_EQ(resolved->accounting().used, 2U);
  EXPECT_EQ(resolved->accounting().warnings.size(), 1U);
  EXPECT_TRUE(resolved->has("head"));
  weights = load(*resolved, {});
  ASSERT_TRUE(weights);
  EXPECT_EQ(values(*weights->matrix("head")), (std::vector<float>{1, 2, 3, 5}));
}

TEST(Accounting, TiedHeadThatDiffersBetweenTheSamples) {
  constexpr std::uint64_t kRows = 1024;
  constexpr std::uint64_t kCols = 512;
  TestCheckpoint checkpoint;
  checkpoint.zeros("embed.weight", "BF16", {kRows, kCols});
  // Far from the first and last page, and from the borders of the others.
  checkpoint.zeros("lm_head.weight", "BF16", {kRows, kCols}).data[40'001] = 1;
  checkpoint.specs = {matrix_spec("embed", {kRows, kCols}, {{"embed"}}, TensorKind::kEmbedding),
                      matrix_spec("head", {kRows, kCols}, {{"lm_head"}}, TensorKind::kHead)};
  checkpoint.specs[1].tied_to = "embed";
  const auto weights = checkpoint.load();
  ASSERT_TRUE(weights) << weights.error().message;
  EXPECT_TRUE(weights->has("head"));
}

TEST(Accounting, ProblemsComeInTheOrderOfTheFile) {
  TestCheckpoint checkpoint;
  for (const char* name : {"z.weight", "b.weight", "a.weight"}) checkpoint.zeros(name, "BF16", {2, 2});
  checkpoint.want("a", 3, 2);
  const auto resolved = checkpoint.resolve();
  ASSERT_TRUE(resolved);
  const Accounting& account = resolved->accounting();
  ASSERT_EQ(account.problems.size(), 3U);
  EXPECT_EQ(account.refused, 3U);
  EXPECT_NE(account.problems[0].message.find("'z.weight'"), std::string::npos);
  EXPECT_NE(account.problems[2].message.find("'a.weight'"), std::string::npos);
  EXPECT_TRUE(fails_with(checkpoint.load(), {"'z.weight'", "and 2 more problems"}));
}

TEST(Accounting, NamesFromFilesAreEscaped) {
  TestCheckpoint checkpoint;
  checkpoint.zeros("x'y", "BF16", {2});
  EXPECT_TRUE(is_refused(checkpoint, {"x\\'y"}));
}

TEST(Accounting, ManyExpertTensorsAreQuick) {
  constexpr int kLayers = 24;
  constexpr int kExperts = 256;
  TestCheckpoint checkpoint;
  checkpoint.config = R"({"quantization_config": {"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": [)";
  for (int layer = 0; layer < kLayers; ++layer) {
    const std::string front = "model.layers." + std::to_string(layer) + ".mlp.experts.";
    for (int e = 0; e < kExperts; ++e) {
      for (const char* part : {"gate_proj", "up_proj", "down_proj"}) {
        const std::string name = front + std::to_string(e) + "." + part;
        checkpoint.file.tensor(name + ".weight", "U8", {1, 8}, all_codes(1));
        checkpoint.file.tensor(name + ".weight_scale", "F8_E4M3", {1, 1}, "\x38");
        checkpoint.file.tensor(name + ".weight_scale_2", "F32", {}, f32({1}));
        checkpoint.file.tensor(name + ".input_scale", "F32", {}, f32({1}));
      }
    }
    for (const char* part : {"gate_proj", "up_proj", "down_proj"}) {
      checkpoint.specs.push_back(
          matrix_spec(front + part, {kExperts, 1, 16}, {{front + "{e}." + part, StoredAs::kPerExpert, true}}));
    }
    checkpoint.config +=
        (layer == 0 ? "\"" : ",\"") + std::string("model.layers.") + std::to_string(layer) + ".self_attn*\"";
  }
  checkpoint.config += "]}}";
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_TRUE(is_accepted(checkpoint));
  // Building the file is in it, too. Half a second on the slowest machine met; sanitizers take their time.
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20));
}

}  // namespace
}  // namespace vernier::test
