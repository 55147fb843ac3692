// Scales of an FP8 KV cache: used or read past, as was asked, and refused when they are no positive numbers.
#include <cmath>
#include <limits>

#include "checkpoint/resolve_support.h"

namespace vernier::test {
namespace {

const std::string kKey = "layers.0.self_attn.k_proj.k_scale";
const std::string kOtherKey = "layers.0.self_attn.k_scale";
const std::string kValue = "layers.0.self_attn.v_proj.v_scale";

/// A checkpoint of one weight whose model asks for cache scales.
TestCheckpoint checkpoint_with_cache() {
  TestCheckpoint checkpoint;
  checkpoint.zeros("a.weight", "BF16", {2, 2});
  checkpoint.want("a", 2, 2);
  for (const auto& [role, names] : {std::pair("k_scale", std::vector<Spelling>{{kKey, StoredAs::kWhole, false},
                                                                               {kOtherKey, StoredAs::kWhole, false}}),
                                    std::pair("v_scale", std::vector<Spelling>{{kValue, StoredAs::kWhole, false}})}) {
    TensorSpec spec = matrix_spec(role, {1}, names, TensorKind::kCacheScale);
    spec.required = false;
    checkpoint.specs.push_back(std::move(spec));
  }
  checkpoint.use_cache_scales = true;
  return checkpoint;
}

TEST(CacheScales, AreUsedOnlyWhereAsked) {
  TestCheckpoint checkpoint = checkpoint_with_cache();
  checkpoint.file.f32_tensor(kKey, {}, {0.25F});
  checkpoint.file.tensor(kValue, "BF16", {1}, bf16({0.5F}));
  const auto used = checkpoint.resolve();
  ASSERT_TRUE(used) << used.error().message;
  EXPECT_TRUE(used->accounting().problems.empty());
  EXPECT_EQ(used->accounting().used, 3U);
  EXPECT_EQ(used->accounting().cache_scales, 2U);
  EXPECT_TRUE(used->accounting().ignored.empty());
  const auto weights = checkpoint.load();
  ASSERT_TRUE(weights) << weights.error().message;
  EXPECT_EQ(weights->vectors.at("k_scale"), std::vector<float>{0.25F});
  EXPECT_EQ(weights->vectors.at("v_scale"), std::vector<float>{0.5F});

  checkpoint.use_cache_scales = false;
  const auto unused = checkpoint.resolve();
  ASSERT_TRUE(unused);
  EXPECT_TRUE(unused->accounting().problems.empty());
  EXPECT_EQ(unused->accounting().ignored, (std::map<std::string, std::uint64_t>{{"kv-scale", 2}}));
  EXPECT_EQ(unused->accounting().cache_scales, 0U);
  EXPECT_FALSE(unused->has("k_scale"));
  EXPECT_TRUE(checkpoint.load()->vectors.empty());

  // They are no weights: what a model holds doesn't depend on its cache.
  EXPECT_EQ(used->accounting().parameters, unused->accounting().parameters);
  EXPECT_EQ(used->accounting().weight_bytes, unused->accounting().weight_bytes);
  EXPECT_EQ(used->accounting().formats.size(), 1U);
}

TEST(CacheScales, EveryPublishedDtypeAndShape) {
  const std::string half("\x00\x38", 2);  // 0.5
  const std::vector<std::pair<std::string, std::string>> kinds = {
      {"F32", f32({0.5F})}, {"BF16", bf16({0.5F})}, {"F16", half}};
  for (const auto& [dtype, bytes] : kinds) {
    for (const std::vector<std::uint64_t>& shape : {std::vector<std::uint64_t>{}, {1}}) {
      TestCheckpoint checkpoint = checkpoint_with_cache();
      checkpoint.file.tensor(kOtherKey, dtype, shape, bytes);
      const auto weights = checkpoint.load();
      ASSERT_TRUE(weights) << weights.error().message;
      EXPECT_EQ(weights->vectors.at("k_scale"), std::vector<float>{0.5F});
      EXPECT_FALSE(weights->has("v_scale"));
    }
  }
}

TEST(CacheScales, WrongOnesAreRefusedFromHeaders) {
  struct Wrong {
    std::string dtype;
    std::vector<std::uint64_t> shape;
    std::string found;
  };
  for (const Wrong& wrong : {Wrong{"F32", {2}, "(F32) is [2], expected [1]"}, Wrong{"F32", {0}, "is [0], expected [1]"},
                             Wrong{"F32", {1, 1}, "is [1, 1], expected [1]"}, Wrong{"BF16", {8}, "is [8]"},
                             Wrong{"I32", {}, "is I32, expected F32, F16 or BF16"},
                             Wrong{"F8_E4M3", {1}, "is F8_E4M3, expected F32, F16 or BF16"}}) {
    TestCheckpoint checkpoint = checkpoint_with_cache();
    checkpoint.zeros(kKey, wrong.dtype, wrong.shape);
    EXPECT_TRUE(is_refused(checkpoint, {"model.safetensors", kKey, wrong.found}));
    EXPECT_TRUE(fails_with(checkpoint.load(), {kKey}));
    checkpoint.use_cache_scales = false;
    EXPECT_TRUE(is_accepted(checkpoint)) << wrong.found;
  }
}

TEST(CacheScales, TwoSpellingsOfOneAreRefused) {
  TestCheckpoint checkpoint = checkpoint_with_cache();
  checkpoint.file.f32_tensor(kKey, {}, {0.25F});
  checkpoint.file.f32_tensor(kOtherKey, {}, {0.25F});
  EXPECT_TRUE(is_refused(checkpoint, {kKey, kOtherKey, "expected one of them"}));
}

TEST(CacheScales, ValuesMustBePositiveAndFinite) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (const float value : {0.0F, -0.0F, -0.5F, kInfinity, -kInfinity, std::nanf("")}) {
    TestCheckpoint checkpoint = checkpoint_with_cache();
    checkpoint.file.f32_tensor(kValue, {1}, {value});
    EXPECT_TRUE(fails_with(checkpoint.load(), {"model.safetensors", kValue, "expected a positive finite number"}));
    // Scans of weights may be skipped, this check not.
    EXPECT_TRUE(fails_with(vernier::load(*checkpoint.resolve(), {.check_blocks = false}), {kValue}));
    checkpoint.use_cache_scales = false;
    EXPECT_TRUE(checkpoint.load());
  }
}

}  // namespace
}  // namespace vernier::test
