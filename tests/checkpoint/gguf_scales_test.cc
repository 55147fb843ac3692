// Second-level scales of GGUF files: where they are, which belong to a weight, and what is refused.
#include "checkpoint/resolve_support.h"

namespace vernier::test {
namespace {

constexpr std::uint32_t kTwoLevelType = 40;
constexpr std::uint32_t kF32Type = 0;

/// `rows` rows of 64 values, all codes 2 (1.0) under a scale of 1.
std::string blocks(std::size_t rows) {
  std::string bytes;
  for (std::size_t i = 0; i < rows; ++i) bytes += std::string(4, '\x38') + std::string(32, '\x22');
  return bytes;
}

TestCheckpoint dense() {
  TestCheckpoint checkpoint;
  checkpoint.gguf = true;
  checkpoint.gguf_file.tensor("blk.0.attn_q.weight", {64, 2}, kTwoLevelType, blocks(2));
  checkpoint.want("blk.0.attn_q", 2, 64);
  return checkpoint;
}

TestCheckpoint bank(std::uint64_t experts) {
  TestCheckpoint checkpoint;
  checkpoint.gguf = true;
  checkpoint.gguf_file.tensor("blk.0.ffn_down_exps.weight", {64, 2, static_cast<std::int64_t>(experts)}, kTwoLevelType,
                              blocks(2 * experts));
  checkpoint.specs = {matrix_spec("down", {experts, 2, 64}, {{"blk.0.ffn_down_exps"}})};
  return checkpoint;
}

TEST(GgufScales, AbsentIsOne) {
  const auto weights = dense().load();
  ASSERT_TRUE(weights) << weights.error().message;
  EXPECT_TRUE(weights->matrix("blk.0.attn_q")->outer.empty());
  EXPECT_EQ(values(*weights->matrix("blk.0.attn_q"))[0], 1.0F);
}

TEST(GgufScales, BothSpellings) {
  for (const char* name : {"blk.0.attn_q.scale", "blk.0.attn_q.weight.scale"}) {
    TestCheckpoint checkpoint = dense();
    checkpoint.gguf_file.f32_tensor(name, {1}, {0.5F});
    checkpoint.gguf_file.f32_tensor("blk.0.attn_q.input_scale", {1}, {7});
    const auto resolved = checkpoint.resolve();
    ASSERT_TRUE(resolved) << resolved.error().message;
    EXPECT_EQ(resolved->accounting().dialect, "gguf");
    EXPECT_EQ(resolved->accounting().used, 2U);
    EXPECT_EQ(resolved->accounting().ignored.at("input-scale"), 1U);
    EXPECT_EQ(resolved->accounting().formats.at("nvfp4").bytes, 72U);
    const auto weights = load(*resolved, {});
    ASSERT_TRUE(weights) << weights.error().message;
    EXPECT_EQ(values(*weights->matrix("blk.0.attn_q"))[127], 0.5F);
  }
}

TEST(GgufScales, BothAtOnceAreRefused) {
  TestCheckpoint checkpoint = dense();
  checkpoint.gguf_file.f32_tensor("blk.0.attn_q.scale", {1}, {1});
  checkpoint.gguf_file.f32_tensor("blk.0.attn_q.weight.scale", {1}, {1});
  EXPECT_TRUE(is_refused(checkpoint, {"'blk.0.attn_q.scale'", "'blk.0.attn_q.weight.scale'", "same"}));
}

TEST(GgufScales, OneAnExpert) {
  TestCheckpoint checkpoint = bank(3);
  checkpoint.gguf_file.f32_tensor("blk.0.ffn_down_exps.scale", {3}, {1, 2, 3});
  const auto weights = checkpoint.load();
  ASSERT_TRUE(weights) << weights.error().message;
  const auto experts = *weights->experts("down");
  ASSERT_EQ(experts.size(), 3U);
  for (std::size_t e = 0; e < 3; ++e) EXPECT_EQ(values(experts[e])[64], static_cast<float>(e + 1));
}

TEST(GgufScales, WrongLengthAndDtype) {
  for (const std::int64_t length : {1, 2, 4}) {
    TestCheckpoint checkpoint = bank(3);
    checkpoint.gguf_file.f32_tensor("blk.0.ffn_down_exps.scale", {length}, std::vector<float>(length, 1));
    EXPECT_TRUE(is_refused(checkpoint, {"'blk.0.ffn_down_exps.scale'", "expected [3]"})) << length;
  }
  TestCheckpoint two = dense();
  two.gguf_file.f32_tensor("blk.0.attn_q.scale", {2}, {1, 1});
  EXPECT_TRUE(is_refused(two, {"'blk.0.attn_q.scale'", "[2]", "expected [1]"}));
  TestCheckpoint half = dense();
  half.gguf_file.tensor("blk.0.attn_q.scale", {1}, 1, std::string("\x00\x3C", 2));
  EXPECT_TRUE(is_refused(half, {"'blk.0.attn_q.scale'", "f16", "expected F32"}));
}

TEST(GgufScales, ValuesThatNoValidFileHolds) {
  for (const float bad : {0.0F, -1.0F, __builtin_nanf(""), __builtin_inff()}) {
    TestCheckpoint checkpoint = bank(2);
    checkpoint.gguf_file.f32_tensor("blk.0.ffn_down_exps.scale", {2}, {1, bad});
    EXPECT_TRUE(fails_with(checkpoint.load(), {"'blk.0.ffn_down_exps.scale'", "above zero"})) << bad;
  }
}

TEST(GgufScales, MergedGateUpUsesOneForBothHalves) {
  TestCheckpoint checkpoint;
  checkpoint.gguf = true;
  checkpoint.gguf_file.tensor("blk.0.ffn_gate_up_exps.weight", {64, 2, 2}, kTwoLevelType, blocks(4));
  checkpoint.gguf_file.f32_tensor("blk.0.ffn_gate_up_exps.scale", {2}, {3, 5});
  checkpoint.specs = {matrix_spec("gate", {2, 1, 64}, {{"blk.0.ffn_gate_up_exps", StoredAs::kFirstHalf}}),
                      matrix_spec("up", {2, 1, 64}, {{"blk.0.ffn_gate_up_exps", StoredAs::kSecondHalf}})};
  const auto weights = checkpoint.load();
  ASSERT_TRUE(weights) << weights.error().message;
  EXPECT_EQ(values((*weights->experts("gate"))[1])[0], 5.0F);
  EXPECT_EQ(values((*weights->experts("up"))[0])[0], 3.0F);
  EXPECT_EQ(values((*weights->experts("up"))[1])[0], 5.0F);
}

TEST(GgufScales, BesideAWeightThatTakesNone) {
  TestCheckpoint checkpoint;
  checkpoint.gguf = true;
  checkpoint.gguf_file.f32_tensor("blk.0.attn_q.weight", {2, 2}, {1, 2, 3, 4});
  checkpoint.gguf_file.f32_tensor("blk.0.attn_q.scale", {1}, {1});
  checkpoint.want("blk.0.attn_q", 2, 2);
  EXPECT_TRUE(is_refused(checkpoint, {"'blk.0.attn_q.scale'", "'blk.0.attn_q.weight' is f32"}));

  TestCheckpoint stray = dense();
  stray.gguf_file.f32_tensor("output.scale", {1}, {1});
  EXPECT_TRUE(is_refused(stray, {"'output.scale'", "weight is missing"}));
}

TEST(GgufScales, ScalesOfTheModelItself) {
  // Gemma-4: a router's scale beside its plain weight, and the experts' own factors, which are folded into the
  // second-level scales where there are some.
  const TensorSpec router = matrix_spec("router", {2, 2}, {{"blk.0.ffn_gate_inp"}}, TensorKind::kOtherLinear);
  const TensorSpec router_scale =
      vector_spec("router_scale", {2}, {"blk.0.ffn_gate_inp.scale", StoredAs::kWhole, false});
  const TensorSpec expert_scale =
      vector_spec("expert_scale", {2}, {"blk.0.ffn_down_exps.scale", StoredAs::kWhole, false});

  TestCheckpoint folded = bank(2);
  folded.gguf_file.f32_tensor("blk.0.ffn_down_exps.scale", {2}, {3, 5});
  folded.gguf_file.f32_tensor("blk.0.ffn_gate_inp.weight", {2, 2}, {1, 2, 3, 4});
  folded.gguf_file.f32_tensor("blk.0.ffn_gate_inp.scale", {2}, {7, 8});
  folded.specs.insert(folded.specs.end(), {router, router_scale, expert_scale});
  auto weights = folded.load();
  ASSERT_TRUE(weights) << weights.error().message;
  EXPECT_EQ(*weights->vector("router_scale"), (std::vector<float>{7, 8}));
  EXPECT_FALSE(weights->has("expert_scale"));
  EXPECT_EQ(values((*weights->experts("down"))[1])[0], 5.0F);

  TestCheckpoint plain;
  plain.gguf = true;
  plain.gguf_file.tensor("blk.0.ffn_down_exps.weight", {2, 1, 2}, kF32Type, f32({1, 2, 3, 4}));
  plain.gguf_file.f32_tensor("blk.0.ffn_down_exps.scale", {2}, {3, 5});
  plain.specs = {matrix_spec("down", {2, 1, 2}, {{"blk.0.ffn_down_exps"}}), expert_scale};
  weights = plain.load();
  ASSERT_TRUE(weights) << weights.error().message;
  EXPECT_EQ(*weights->vector("expert_scale"), (std::vector<float>{3, 5}));
  EXPECT_EQ(values((*weights->experts("down"))[1])[0], 3.0F);
}

TEST(GgufScales, UnsupportedTypeAndWrongShape) {
  TestCheckpoint type;
  type.gguf = true;
  type.gguf_file.tensor("a.weight", {256, 1}, 16, std::string(66, '\0'));  // iq2_xxs
  type.want("a", 1, 256);
  EXPECT_TRUE(is_refused(type, {"'a.weight'", "iq2_xxs"}));

  TestCheckpoint shape = dense();
  shape.specs[0].shape = {64, 2};
  EXPECT_TRUE(is_refused(shape, {"'blk.0.attn_q.weight'", "[2, 64]", "expected [64, 2]"}));
}

}  // namespace
}  // namespace vernier::test
