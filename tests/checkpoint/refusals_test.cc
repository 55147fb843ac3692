// One test a refusal: tensors that contradict their dtypes, shapes, companions, or the quantisation config.
#include "checkpoint/resolve_support.h"

namespace vernier::test {
namespace {

/// A right [256, 384] FP8 weight with a grid of `shape`.
TestCheckpoint grid_checkpoint(std::vector<std::uint64_t> shape, std::string_view dtype = "F32") {
  TestCheckpoint checkpoint;
  checkpoint.zeros("a.weight", "F8_E4M3", {200, 300});
  checkpoint.zeros("a.weight_scale_inv", dtype, std::move(shape));
  checkpoint.want("a", 200, 300);
  return checkpoint;
}

/// A right 4-bit weight without its second level.
TestCheckpoint fp4_checkpoint() {
  TestCheckpoint checkpoint;
  checkpoint.file.tensor("a.weight", "U8", {2, 16}, all_codes(4));
  checkpoint.file.tensor("a.weight_scale", "F8_E4M3", {2, 2}, "\x38\x38\x38\x38");
  checkpoint.want("a", 2, 32);
  return checkpoint;
}

TEST(Refusals, E5M2) {
  TestCheckpoint checkpoint;
  checkpoint.zeros("a.weight", "F8_E5M2", {2, 2});
  checkpoint.zeros("a.weight_scale", "F32", {});
  checkpoint.want("a", 2, 2);
  EXPECT_TRUE(is_refused(checkpoint, {"'a.weight'", "F8_E5M2", "F8_E4M3"}));
}

TEST(Refusals, RowAndBlockScalesTogether) {
  TestCheckpoint checkpoint = grid_checkpoint({2, 3});
  checkpoint.zeros("a.weight_scale", "F32", {200, 1});
  EXPECT_TRUE(is_refused(checkpoint, {"'a.weight'", "two scales", "[200, 1]", "[2, 3]"}));
}

TEST(Refusals, GridOfWrongShape) {
  EXPECT_TRUE(is_accepted(grid_checkpoint({2, 3})));
  EXPECT_TRUE(is_refused(grid_checkpoint({3, 2}), {"'a.weight_scale_inv'", "[3, 2]", "expected [2, 3]", "transposed"}));
  EXPECT_TRUE(is_refused(grid_checkpoint({1, 2}), {"[1, 2]", "expected [2, 3]", "partial blocks"}));
  EXPECT_TRUE(is_refused(grid_checkpoint({4, 5}), {"[4, 5]", "expected [2, 3]", "'a.weight' [200, 300]"}));
  EXPECT_TRUE(is_refused(grid_checkpoint({6}), {"[6]", "expected [2, 3]"}));
}

TEST(Refusals, DeclaredBlockSizeOtherThanTheGrids) {
  TestCheckpoint checkpoint = grid_checkpoint({2, 3});
  const auto declare = [&](const char* size) {
    checkpoint.config =
        std::string(R"({"quantization_config": {"quant_method": "fp8", "weight_block_size": )") + size + "}}";
  };
  declare("[128, 128]");
  EXPECT_TRUE(is_accepted(checkpoint));
  declare("[64, 64]");
  EXPECT_TRUE(is_refused(checkpoint, {"'a.weight_scale_inv'", "[2, 3]", "expected [4, 5]", "64 x 64", "128 x 128"}));
  declare("[64]");
  EXPECT_TRUE(fails_with(checkpoint.resolve(), {"weight_block_size", "pair of integers"}));
  declare("[0, 128]");
  EXPECT_TRUE(fails_with(checkpoint.resolve(), {"weight_block_size", "[0, 128]"}));

  TestCheckpoint other = grid_checkpoint({4, 5});
  other.config = R"({"quantization_config": {"quant_method": "fp8", "weight_block_size": [64, 64]}})";
  EXPECT_TRUE(is_refused(other, {"'a.weight_scale_inv'", "64 x 64", "128 x 128 is supported"}));
}

TEST(Refusals, WrongScaleDtype) {
  EXPECT_TRUE(is_refused(grid_checkpoint({2, 3}, "I32"), {"'a.weight_scale_inv'", "I32", "expected F32 or BF16"}));
  EXPECT_TRUE(is_refused(grid_checkpoint({2, 3}, "F16"), {"'a.weight_scale_inv'", "F16", "expected F32 or BF16"}));

  TestCheckpoint checkpoint;
  checkpoint.zeros("a.weight", "U8", {2, 16});
  checkpoint.zeros("a.weight_scale", "BF16", {2, 2});
  checkpoint.zeros("a.weight_scale_2", "F32", {});
  checkpoint.want("a", 2, 32);
  EXPECT_TRUE(is_refused(checkpoint, {"'a.weight_scale'", "BF16", "expected F8_E4M3"}));

  TestCheckpoint second = fp4_checkpoint();
  second.zeros("a.weight_scale_2", "BF16", {});
  EXPECT_TRUE(is_refused(second, {"'a.weight_scale_2'", "BF16", "expected F32"}));
}

TEST(Refusals, RowScalesOfWrongShape) {
  TestCheckpoint checkpoint;
  checkpoint.zeros("a.weight", "F8_E4M3", {200, 300});
  checkpoint.zeros("a.weight_scale", "F32", {1, 200});
  checkpoint.want("a", 200, 300);
  EXPECT_TRUE(is_refused(checkpoint, {"'a.weight_scale'", "[1, 200]", "expected [200, 1] or one value, or [2, 3]"}));
}

TEST(Refusals, MicroscaledEightBit) {
  EXPECT_TRUE(is_refused(grid_checkpoint({200, 10}, "U8"), {"'a.weight_scale_inv'", "each 32 values"}));
}

TEST(Refusals, SecondLevelScaleThatNoValidFileHolds) {
  for (const float bad : {0.0F, -1.0F, __builtin_nanf(""), __builtin_inff()}) {
    TestCheckpoint checkpoint = fp4_checkpoint();
    checkpoint.file.tensor("a.weight_scale_2", "F32", {}, f32({bad}));
    EXPECT_TRUE(fails_with(checkpoint.load(), {"'a.weight_scale_2'", "above zero"})) << bad;
  }
  TestCheckpoint good = fp4_checkpoint();
  auto& scale = good.file.tensor("a.weight_scale_2", "F32", {}, f32({1e-4F}));
  ASSERT_TRUE(good.load());
  EXPECT_TRUE(good.load()->warnings.empty());
  scale.data = f32({5e4F});
  ASSERT_TRUE(good.load());
  EXPECT_EQ(good.load()->warnings.size(), 1U);
}

TEST(Refusals, RowScaleThatNoValidFileHolds) {
  TestCheckpoint checkpoint;
  checkpoint.zeros("a.weight", "F8_E4M3", {2, 2});
  checkpoint.file.tensor("a.weight_scale", "BF16", {2, 1}, bf16({1, -1}));
  checkpoint.want("a", 2, 2);
  EXPECT_TRUE(fails_with(checkpoint.load(), {"'a.weight_scale'", "-1"}));
}

TEST(Refusals, PerExpertScalesOfTheWrongLength) {
  TestCheckpoint checkpoint;
  checkpoint.zeros("e.down", "U8", {4, 2, 8});
  checkpoint.zeros("e.down_weight_scale", "F8_E4M3", {4, 2, 1});
  checkpoint.zeros("e.down_weight_scale_2", "F32", {3});
  checkpoint.specs = {matrix_spec("down", {4, 2, 16}, {{"e.down", StoredAs::kWhole, false}})};
  EXPECT_TRUE(is_refused(checkpoint, {"'e.down_weight_scale_2'", "[3]", "[4]"}));
}

TEST(Refusals, TwoSecondLevels) {
  TestCheckpoint checkpoint = fp4_checkpoint();
  checkpoint.zeros("a.weight_scale_2", "F32", {});
  checkpoint.zeros("a.weight_global_scale", "F32", {1});
  EXPECT_TRUE(is_refused(checkpoint, {"two second-level scales", "a.weight_scale_2", "a.weight_global_scale"}));
}

TEST(Refusals, MissingScales) {
  EXPECT_TRUE(is_refused(fp4_checkpoint(), {"'a.weight'", "'a.weight_scale_2' is missing"}));

  TestCheckpoint codes_only;
  codes_only.zeros("a.weight", "U8", {2, 16});
  codes_only.want("a", 2, 32);
  EXPECT_TRUE(is_refused(codes_only, {"'a.weight'", "'a.weight_scale' are missing"}));

  TestCheckpoint fp8_only;
  fp8_only.zeros("a.weight", "F8_E4M3", {2, 2});
  fp8_only.want("a", 2, 2);
  EXPECT_TRUE(is_refused(fp8_only, {"'a.weight'", "'a.weight_scale' is missing"}));

  // One weight of several without its divisor is not a file of the kind that has none.
  TestCheckpoint divisors;
  for (const char* name : {"a", "b"}) {
    divisors.zeros(std::string(name) + ".weight_packed", "U8", {2, 16});
    divisors.zeros(std::string(name) + ".weight_scale", "F8_E4M3", {2, 2});
    divisors.want(name, 2, 32);
  }
  divisors.zeros("a.weight_global_scale", "F32", {1});
  EXPECT_TRUE(is_refused(divisors, {"'b.weight_packed'", "'b.weight_global_scale' is missing"}));
}

TEST(Refusals, ScalesThatDontBelong) {
  TestCheckpoint plain;
  plain.zeros("a.weight", "BF16", {2, 2});
  plain.zeros("a.weight_scale", "F32", {});
  plain.want("a", 2, 2);
  EXPECT_TRUE(is_refused(plain, {"'a.weight_scale'", "BF16 takes no such scale"}));

  TestCheckpoint stray;
  stray.zeros("a.weight", "BF16", {2, 2});
  stray.zeros("b.weight_scale", "F32", {});
  stray.want("a", 2, 2);
  EXPECT_TRUE(is_refused(stray, {"'b.weight_scale'", "weight is missing"}));

  TestCheckpoint norm;
  norm.zeros("a.weight", "BF16", {2});
  norm.zeros("a.weight_scale", "F32", {});
  norm.specs = {vector_spec("a", {2}, {"a"})};
  EXPECT_TRUE(is_refused(norm, {"'a.weight_scale'", "takes no such scale"}));
}

TEST(Refusals, SwizzledScales) {
  TestCheckpoint checkpoint;
  checkpoint.zeros("a.weight", "U8", {2, 16});
  checkpoint.zeros("a.weight_scale", "F8_E4M3", {512});
  checkpoint.zeros("a.weight_scale_2", "F32", {});
  checkpoint.want("a", 2, 32);
  EXPECT_TRUE(is_refused(checkpoint, {"'a.weight_scale'", "[512]", "expected [2, 2]", "swizzled"}));
}

TEST(Refusals, TransposedWeights) {
  TestCheckpoint checkpoint;
  checkpoint.zeros("a.weight", "BF16", {3, 2});
  checkpoint.want("a", 2, 3);
  EXPECT_TRUE(is_refused(checkpoint, {"'a.weight'", "[3, 2]", "expected [2, 3]"}));

  TestCheckpoint packed = fp4_checkpoint();
  packed.zeros("a.weight_scale_2", "F32", {});
  packed.specs[0].shape = {2, 64};
  EXPECT_TRUE(is_refused(packed, {"'a.weight'", "[2, 16]", "expected [2, 32]"}));
}

TEST(Refusals, UnsupportedDtypes) {
  for (const char* dtype : {"I32", "I64", "BOOL"}) {
    TestCheckpoint checkpoint;
    checkpoint.zeros("a.weight", dtype, {2, 2});
    checkpoint.want("a", 2, 2);
    EXPECT_TRUE(is_refused(checkpoint, {"'a.weight'", dtype})) << dtype;
  }
  TestCheckpoint vector;
  vector.zeros("a.weight", "U8", {2});
  vector.specs = {vector_spec("a", {2}, {"a"})};
  EXPECT_TRUE(is_refused(vector, {"'a.weight'", "U8", "expected F32, F16 or BF16"}));
}

TEST(Refusals, RowsThatDontFillGroups) {
  TestCheckpoint checkpoint;
  checkpoint.zeros("a.weight", "U8", {2, 12});
  checkpoint.zeros("a.weight_scale", "F8_E4M3", {2, 2});
  checkpoint.zeros("a.weight_scale_2", "F32", {});
  checkpoint.want("a", 2, 24);
  EXPECT_TRUE(is_refused(checkpoint, {"'a.weight'", "24", "multiple of 16"}));
}

TEST(Refusals, BlocksThatNoValidFileHolds) {
  TestCheckpoint nan_scale;
  nan_scale.file.tensor("a.weight", "U8", {2, 8}, all_codes(2));
  nan_scale.file.tensor("a.weight_scale", "F8_E4M3", {2, 1}, "\x38\x7F");
  nan_scale.file.tensor("a.weight_scale_2", "F32", {}, f32({1}));
  nan_scale.want("a", 2, 16);
  EXPECT_TRUE(fails_with(nan_scale.load(), {"model.safetensors", "'a.weight'", "row 1", "block 0"}));
  const auto resolved = nan_scale.resolve();
  ASSERT_TRUE(resolved);
  EXPECT_TRUE(load(*resolved, {.check_blocks = false}));

  TestCheckpoint vector;
  vector.file.tensor("a.weight", "F32", {2}, f32({1, __builtin_nanf("")}));
  vector.specs = {vector_spec("a", {2}, {"a"})};
  EXPECT_TRUE(fails_with(vector.load(), {"'a.weight'", "value 1"}));
}

TEST(Refusals, LookAlikesByTheirTensors) {
  struct Case {
    const char* tensor;
    const char* dtype;
    const char* producer;
  };
  for (const Case& c :
       {Case{"a.scales", "BF16", "MLX"}, Case{"a.biases", "BF16", "MLX"}, Case{"a.SCB", "F32", "bitsandbytes"},
        Case{"a.weight.absmax", "U8", "bitsandbytes"}, Case{"a.qweight", "I32", "GPTQ"}, Case{"a.g_idx", "I32", "GPTQ"},
        Case{"a.weight_zero_point", "I32", "compressed-tensors integer"},
        Case{"a.smooth_quant_scale", "F32", "SmoothQuant"}}) {
    TestCheckpoint checkpoint;
    checkpoint.zeros("a.weight", "BF16", {2, 2});
    checkpoint.zeros(c.tensor, c.dtype, {2});
    checkpoint.want("a", 2, 2);
    EXPECT_TRUE(fails_with(checkpoint.resolve(), {c.tensor, c.producer})) << c.tensor;
  }
}

TEST(Refusals, UnquantisedMlxExport) {
  TestCheckpoint checkpoint;
  checkpoint.zeros("conv.weight", "BF16", {8, 4, 1});
  checkpoint.specs = {matrix_spec("conv", {8, 1, 4}, {{"conv"}}, TensorKind::kConvolution)};
  EXPECT_TRUE(fails_with(checkpoint.resolve(), {"'conv.weight'", "[8, 4, 1]", "[8, 1, 4]", "MLX"}));
}

// --- the config against the tensors ---

TestCheckpoint declared(std::string_view config, bool quantised) {
  TestCheckpoint checkpoint;
  checkpoint.config = std::string(R"({"quantization_config": )") + std::string(config) + "}";
  const std::string name = "model.layers.0.mlp.up_proj";
  if (quantised) {
    checkpoint.file.tensor(name + ".weight", "U8", {1, 8}, all_codes(1));
    checkpoint.file.tensor(name + ".weight_scale", "F8_E4M3", {1, 1}, "\x38");
    checkpoint.file.tensor(name + ".weight_scale_2", "F32", {}, f32({1}));
  } else {
    checkpoint.zeros(name + ".weight", "BF16", {1, 16});
  }
  checkpoint.want(name, 1, 16);
  return checkpoint;
}

TEST(Refusals, TrunkProjectionAgainstItsConfig) {
  const char* covers = R"({"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": ["lm_head"]})";
  EXPECT_TRUE(is_accepted(declared(covers, true)));
  EXPECT_TRUE(is_refused(declared(covers, false),
                         {"'model.layers.0.mlp.up_proj.weight'", "BF16", "config.json declares NVFP4"}));

  const char* leaves = R"({"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": ["*.mlp*"]})";
  EXPECT_TRUE(is_accepted(declared(leaves, false)));
  EXPECT_TRUE(is_refused(declared(leaves, true), {"'model.layers.0.mlp.up_proj.weight'", "NVFP4", "unquantised"}));

  const char* other = R"({"quant_method": "modelopt", "quant_algo": "FP8"})";
  EXPECT_TRUE(is_refused(declared(other, true), {"is NVFP4", "declares FP8"}));

  const char* group = R"({"quant_method": "modelopt", "quant_algo": "NVFP4", "group_size": 128})";
  EXPECT_TRUE(is_refused(declared(group, true), {"groups of 16", "group_size of 128"}));
}

TEST(Refusals, OnlyTrunkProjectionsCount) {
  const char* covers = R"({"quant_method": "modelopt", "quant_algo": "NVFP4"})";
  for (const TensorKind kind : {TensorKind::kOtherLinear, TensorKind::kHead, TensorKind::kEmbedding}) {
    TestCheckpoint checkpoint = declared(covers, false);
    checkpoint.specs[0].kind = kind;
    EXPECT_TRUE(is_accepted(checkpoint));
  }
  TestCheckpoint mtp = declared(covers, false);
  mtp.specs[0].mtp = true;
  EXPECT_TRUE(is_accepted(mtp));
  // A quantised head that the list leaves out: the tensors are right.
  TestCheckpoint head =
      declared(R"({"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": ["*up_proj"]})", true);
  head.specs[0].kind = TensorKind::kHead;
  EXPECT_TRUE(is_accepted(head));
}

TEST(Refusals, FusedBankAgainstTheConfigOnce) {
  TestCheckpoint checkpoint;
  checkpoint.config = R"({"quantization_config": {"quant_method": "fp8"}})";
  checkpoint.zeros("model.mlp.experts.gate_up_proj", "BF16", {1, 4, 2});
  checkpoint.specs = {matrix_spec("gate", {1, 2, 2}, {{"model.mlp.experts.gate_up_proj", StoredAs::kFirstHalf, false}}),
                      matrix_spec("up", {1, 2, 2}, {{"model.mlp.experts.gate_up_proj", StoredAs::kSecondHalf, false}})};
  EXPECT_TRUE(is_refused(checkpoint, {"'model.mlp.experts.gate_up_proj'", "BF16", "FP8"}));
  EXPECT_EQ(checkpoint.resolve()->accounting().problems.size(), 1U);
}

TEST(Refusals, SingleExpertAgainstTheConfig) {
  TestCheckpoint checkpoint;
  checkpoint.config = R"({"quantization_config": {"quant_method": "modelopt", "quant_algo": "NVFP4",
                          "ignore": ["model.mlp.experts.1.up"]}})";
  for (int e = 0; e < 3; ++e) {
    const std::string name = "model.mlp.experts." + std::to_string(e) + ".up";
    if (e == 1) {
      checkpoint.zeros(name + ".weight", "BF16", {1, 16});
      continue;
    }
    checkpoint.file.tensor(name + ".weight", "U8", {1, 8}, all_codes(1));
    checkpoint.file.tensor(name + ".weight_scale", "F8_E4M3", {1, 1}, "\x38");
    checkpoint.file.tensor(name + ".weight_scale_2", "F32", {}, f32({1}));
  }
  checkpoint.specs = {matrix_spec("up", {3, 1, 16}, {{"model.mlp.experts.{e}.up", StoredAs::kPerExpert, true}})};
  EXPECT_TRUE(is_accepted(checkpoint));
  checkpoint.config = R"({"quantization_config": {"quant_method": "modelopt", "quant_algo": "NVFP4"}})";
  EXPECT_TRUE(is_refused(checkpoint, {"'model.mlp.experts.1.up.weight'", "BF16", "NVFP4"}));
}

}  // namespace
}  // namespace vernier::test
