// Every producer dialect in its right form: what is recognised, and that the values come out as its documentation says.
#include "checkpoint/resolve_support.h"

namespace vernier::test {
namespace {

constexpr float kCodes[] = {0, 0.5F, 1, 1.5F, 2, 3, 4, 6, -0.0F, -0.5F, -1, -1.5F, -2, -3, -4, -6};

std::string format_name(const Weight& weight) { return std::string(format_info(weight.format).name); }

TEST(Dialects, ModelOptSecondScaleMultiplies) {
  TestCheckpoint checkpoint;
  checkpoint.config = R"({"quantization_config": {"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": []}})";
  checkpoint.file.tensor("a.weight", "U8", {1, 8}, all_codes(1));
  checkpoint.file.tensor("a.weight_scale", "F8_E4M3", {1, 1}, "\x40");
  checkpoint.file.tensor("a.weight_scale_2", "F32", {}, f32({0.001F}));
  checkpoint.file.tensor("a.input_scale", "F32", {}, f32({7.0F}));
  checkpoint.want("a", 1, 16);
  const auto resolved = checkpoint.resolve();
  ASSERT_TRUE(resolved) << resolved.error().message;
  EXPECT_EQ(resolved->accounting().dialect, "modelopt");
  EXPECT_EQ(resolved->accounting().used, 3U);
  EXPECT_EQ(resolved->accounting().ignored.at("input-scale"), 1U);
  EXPECT_EQ(resolved->accounting().formats.at("nvfp4").tensors, 1U);
  EXPECT_EQ(resolved->accounting().formats.at("nvfp4").bytes, 8U + 1U + 4U);
  EXPECT_EQ(resolved->accounting().parameters, 16U);

  const auto weights = load(*resolved, {});
  ASSERT_TRUE(weights) << weights.error().message;
  const std::vector<float> found = values(*weights->matrix("a"));
  for (std::size_t i = 0; i < 16; ++i) EXPECT_EQ(found[i], kCodes[i] * 2.0F * 0.001F) << i;
}

TEST(Dialects, CompressedTensorsGlobalScaleDivides) {
  TestCheckpoint checkpoint;
  checkpoint.file.tensor("a.weight_packed", "U8", {1, 8}, all_codes(1));
  checkpoint.file.tensor("a.weight_scale", "F8_E4M3", {1, 1}, "\x40");
  checkpoint.file.tensor("a.weight_global_scale", "F32", {1}, f32({1000.0F}));
  checkpoint.file.tensor("a.input_global_scale", "F32", {1}, f32({3.0F}));
  checkpoint.want("a", 1, 16);
  const auto weights = checkpoint.load();
  ASSERT_TRUE(weights) << weights.error().message;
  const std::vector<float> found = values(*weights->matrix("a"));
  for (std::size_t i = 0; i < 16; ++i) EXPECT_EQ(found[i], kCodes[i] * 2.0F / 1000.0F) << i;
}

TEST(Dialects, PackedCodesWithoutAnyGlobalScaleHaveFactorOne) {
  TestCheckpoint checkpoint;
  checkpoint.file.tensor("a.weight_packed", "U8", {1, 8}, all_codes(1));
  checkpoint.file.tensor("a.weight_scale", "F8_E4M3", {1, 1}, "\x38");
  checkpoint.want("a", 1, 16);
  const auto weights = checkpoint.load();
  ASSERT_TRUE(weights) << weights.error().message;
  EXPECT_EQ(values(*weights->matrix("a"))[7], 6.0F);
}

TEST(Dialects, PackedCodesWithExponentsAreMicroscaled) {
  TestCheckpoint checkpoint;
  checkpoint.file.tensor("a.weight_packed", "U8", {1, 16}, all_codes(2));
  checkpoint.file.tensor("a.weight_scale", "U8", {1, 1}, "\x80");
  checkpoint.want("a", 1, 32);
  const auto weights = checkpoint.load();
  ASSERT_TRUE(weights) << weights.error().message;
  EXPECT_EQ(format_name(*weights->matrix("a")), "mxfp4");
  EXPECT_EQ(values(*weights->matrix("a"))[7], 12.0F);
}

TEST(Dialects, GptOssRowsAlternate) {
  TestCheckpoint checkpoint;
  // Two experts of two gate and two up rows; the scale exponent says which row it is.
  std::string scales;
  for (int i = 0; i < 8; ++i) scales += static_cast<char>(127 + i);
  checkpoint.file.tensor("e.gate_up_proj_blocks", "U8", {2, 4, 1, 16}, all_codes(16));
  checkpoint.file.tensor("e.gate_up_proj_scales", "U8", {2, 4, 1}, scales);
  checkpoint.specs = {matrix_spec("gate", {2, 2, 32}, {{"e.gate_up_proj", StoredAs::kEvenRows, false}}),
                      matrix_spec("up", {2, 2, 32}, {{"e.gate_up_proj", StoredAs::kOddRows, false}})};
  const auto resolved = checkpoint.resolve();
  ASSERT_TRUE(resolved) << resolved.error().message;
  EXPECT_EQ(resolved->accounting().dialect, "gpt-oss");
  EXPECT_EQ(resolved->accounting().formats.at("mxfp4").tensors, 1U);
  const auto weights = load(*resolved, {});
  ASSERT_TRUE(weights) << weights.error().message;
  const auto gate = *weights->experts("gate");
  const auto up = *weights->experts("up");
  ASSERT_EQ(gate.size(), 2U);
  // Code 2 is 1.0, so element 2 of each row is its scale.
  EXPECT_EQ(values(gate[0])[2], 1.0F);
  EXPECT_EQ(values(up[0])[2], 2.0F);
  EXPECT_EQ(values(gate[0])[32 + 2], 4.0F);
  EXPECT_EQ(values(gate[1])[32 + 2], 64.0F);
  EXPECT_EQ(values(up[1])[32 + 2], 128.0F);
}

/// A [2, 2] FP8 weight of ones with a scale.
TestCheckpoint fp8_checkpoint(std::string_view scale_name, std::string_view dtype, std::vector<std::uint64_t> shape,
                              std::string scale) {
  TestCheckpoint checkpoint;
  checkpoint.file.tensor("a.weight", "F8_E4M3", {2, 2}, "\x38\x38\x38\x38");
  checkpoint.file.tensor(scale_name, dtype, std::move(shape), std::move(scale));
  checkpoint.want("a", 2, 2);
  return checkpoint;
}

TEST(Dialects, Fp8ScalesByShape) {
  struct Case {
    const char* name;
    const char* dtype;
    std::vector<std::uint64_t> shape;
    std::string bytes;
    const char* format;
    std::vector<float> values;
  };
  const Case cases[] = {
      {"a.weight_scale", "F32", {}, f32({3}), "fp8-tensor", {3, 3, 3, 3}},
      {"a.weight_scale", "BF16", {1}, bf16({3}), "fp8-tensor", {3, 3, 3, 3}},
      {"a.weight_scale", "F32", {2}, f32({3, 5}), "fp8-row", {3, 3, 5, 5}},
      {"a.weight_scale", "BF16", {2, 1}, bf16({3, 5}), "fp8-row", {3, 3, 5, 5}},
      {"a.weight_scale_inv", "F32", {1, 1}, f32({3}), "fp8-block", {3, 3, 3, 3}},
      {"a.weight_scale_inv", "BF16", {1, 1}, bf16({3}), "fp8-block", {3, 3, 3, 3}},
      {"a.weight_scale", "F32", {1, 1, 1, 1}, f32({3}), "fp8-block", {3, 3, 3, 3}},
      {"a.weight_scale_inv", "F8_E8M0", {1, 1}, "\x81", "fp8-block", {4, 4, 4, 4}},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(std::string(c.name) + " " + c.dtype + " " + shape_text(c.shape));
    const TestCheckpoint checkpoint = fp8_checkpoint(c.name, c.dtype, c.shape, c.bytes);
    const auto weights = checkpoint.load();
    ASSERT_TRUE(weights) << weights.error().message;
    EXPECT_EQ(format_name(*weights->matrix("a")), c.format);
    EXPECT_EQ(values(*weights->matrix("a")), c.values);
  }
}

TEST(Dialects, GridWithPartialBlocks) {
  TestCheckpoint checkpoint;
  checkpoint.file.tensor("a.weight", "F8_E4M3", {130, 200}, std::string(130 * 200, '\x38'));
  checkpoint.file.tensor("a.weight_scale_inv", "BF16", {2, 2}, bf16({0.5F, 0.25F, 2, 4}));
  checkpoint.want("a", 130, 200);
  const auto weights = checkpoint.load();
  ASSERT_TRUE(weights) << weights.error().message;
  const std::vector<float> found = values(*weights->matrix("a"));
  EXPECT_EQ(found[129 * 200 + 150], 4.0F);
  EXPECT_EQ(found[127 * 200 + 150], 0.25F);
}

TEST(Dialects, HalvesOfAFusedTensorKeepTheGridOfTheWhole) {
  TestCheckpoint checkpoint;
  // Two experts; gate and up have 96 rows each, so that the second half begins within a block.
  checkpoint.file.tensor("e.gate_up_proj", "F8_E4M3", {2, 192, 4}, std::string(2 * 192 * 4, '\x38'));
  checkpoint.file.tensor("e.gate_up_proj_scale_inv", "F32", {2, 2, 1}, f32({1, 2, 3, 4}));
  checkpoint.specs = {matrix_spec("gate", {2, 96, 4}, {{"e.gate_up_proj", StoredAs::kFirstHalf, false}}),
                      matrix_spec("up", {2, 96, 4}, {{"e.gate_up_proj", StoredAs::kSecondHalf, false}})};
  const auto weights = checkpoint.load();
  ASSERT_TRUE(weights) << weights.error().message;
  const auto up = *weights->experts("up");
  EXPECT_EQ(values((*weights->experts("gate"))[1])[95 * 4], 3.0F);
  EXPECT_EQ(values(up[0])[31 * 4], 1.0F);
  EXPECT_EQ(values(up[0])[32 * 4], 2.0F);
  EXPECT_EQ(values(up[1])[0], 3.0F);
  EXPECT_EQ(values(up[1])[95 * 4], 4.0F);
}

TEST(Dialects, FusedBankWithAScaleForEachHalf) {
  TestCheckpoint checkpoint;
  checkpoint.file.tensor("e.gate_up_proj", "U8", {2, 2, 8}, all_codes(4));
  checkpoint.file.tensor("e.gate_up_proj_weight_scale", "F8_E4M3", {2, 2, 1}, "\x38\x38\x38\x38");
  checkpoint.file.tensor("e.gate_up_proj_weight_scale_2", "F32", {2, 2}, f32({1, 2, 3, 4}));
  checkpoint.specs = {matrix_spec("gate", {2, 1, 16}, {{"e.gate_up_proj", StoredAs::kFirstHalf, false}}),
                      matrix_spec("up", {2, 1, 16}, {{"e.gate_up_proj", StoredAs::kSecondHalf, false}})};
  const auto weights = checkpoint.load();
  ASSERT_TRUE(weights) << weights.error().message;
  EXPECT_EQ(values((*weights->experts("gate"))[0])[2], 1.0F);
  EXPECT_EQ(values((*weights->experts("up"))[0])[2], 2.0F);
  EXPECT_EQ(values((*weights->experts("gate"))[1])[2], 3.0F);
  EXPECT_EQ(values((*weights->experts("up"))[1])[2], 4.0F);
}

TEST(Dialects, SeparateExpertsKeepTheirOwnScales) {
  TestCheckpoint checkpoint;
  for (int e = 0; e < 12; ++e) {
    const std::string name = "e." + std::to_string(e) + ".up";
    checkpoint.file.tensor(name + ".weight", "U8", {1, 8}, all_codes(1));
    checkpoint.file.tensor(name + ".weight_scale", "F8_E4M3", {1, 1}, "\x38");
    checkpoint.file.tensor(name + ".weight_scale_2", "F32", {}, f32({static_cast<float>(e + 1)}));
  }
  checkpoint.specs = {
      matrix_spec("up", {12, 1, 16}, {{"e.up", StoredAs::kWhole, false}, {"e.{e}.up", StoredAs::kPerExpert, true}})};
  const auto weights = checkpoint.load();
  ASSERT_TRUE(weights) << weights.error().message;
  const auto experts = *weights->experts("up");
  ASSERT_EQ(experts.size(), 12U);
  for (std::size_t e = 0; e < 12; ++e) EXPECT_EQ(values(experts[e])[2], static_cast<float>(e + 1));
}

TEST(Dialects, VectorsBecomeFloats) {
  TestCheckpoint checkpoint;
  checkpoint.file.tensor("norm.weight", "BF16", {2}, bf16({0.5F, -2}));
  checkpoint.file.tensor("bias", "F16", {1, 2}, std::string("\x00\x3C\x01\x00", 4));
  checkpoint.file.tensor("pairs", "F32", {2, 4}, f32({1, 2, 3, 4, 5, 6, 7, 8}));
  checkpoint.file.tensor("conv.weight", "F32", {2, 1, 2}, f32({1, 2, 3, 4}));
  checkpoint.specs = {vector_spec("norm", {2}, {"norm"}), vector_spec("bias", {2}, {"bias", StoredAs::kWhole, false}),
                      vector_spec("even", {2, 2}, {"pairs", StoredAs::kEvenRows, false}),
                      vector_spec("odd", {2, 2}, {"pairs", StoredAs::kOddRows, false})};
  checkpoint.specs[0].add = 1.0F;
  checkpoint.specs.push_back(matrix_spec("conv", {2, 1, 2}, {{"conv"}}, TensorKind::kConvolution));
  const auto weights = checkpoint.load();
  ASSERT_TRUE(weights) << weights.error().message;
  EXPECT_EQ(*weights->vector("norm"), (std::vector<float>{1.5F, -1}));
  EXPECT_EQ(*weights->vector("bias"), (std::vector<float>{1, 0x1p-24F}));
  EXPECT_EQ(*weights->vector("even"), (std::vector<float>{1, 3, 5, 7}));
  EXPECT_EQ(*weights->vector("odd"), (std::vector<float>{2, 4, 6, 8}));
  EXPECT_EQ(*weights->vector("conv"), (std::vector<float>{1, 2, 3, 4}));
}

TEST(Dialects, NamesWithoutConfigTellTheProducer) {
  TestCheckpoint checkpoint = fp8_checkpoint("a.weight_scale_inv", "F32", {1, 1}, f32({1}));
  auto resolved = checkpoint.resolve();
  ASSERT_TRUE(resolved);
  EXPECT_EQ(resolved->accounting().dialect, "fp8");
  EXPECT_EQ(resolved->accounting().warnings.size(), 1U);
  TestCheckpoint plain;
  plain.zeros("a.weight", "BF16", {2, 2});
  plain.want("a", 2, 2);
  resolved = plain.resolve();
  ASSERT_TRUE(resolved);
  EXPECT_EQ(resolved->accounting().dialect, "plain");
  EXPECT_TRUE(resolved->accounting().warnings.empty());
}

}  // namespace
}  // namespace vernier::test
