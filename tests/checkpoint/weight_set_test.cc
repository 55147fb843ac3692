// resolve() and load() on files: the configs beside them, shards that share a weight, files that change.
#include "checkpoint/weight_set.h"

#include "checkpoint/checkpoint_files.h"
#include "checkpoint/resolve_support.h"

namespace vernier::test {
namespace {

/// A folder with one FP8 weight whose scale is in another shard.
void save_two_shards(const TempFolder& folder) {
  SafetensorsBuilder codes;
  codes.tensor("a.weight", "F8_E4M3", {2, 2}, "\x38\x38\x38\x38");
  codes.save(folder / "model-1.safetensors");
  SafetensorsBuilder scales;
  scales.f32_tensor("a.weight_scale_inv", {1, 1}, {3});
  scales.save(folder / "model-2.safetensors");
  save(folder / "model.safetensors.index.json",
       shard_index_text({{"a.weight", "model-1.safetensors"}, {"a.weight_scale_inv", "model-2.safetensors"}}));
}

const std::vector<TensorSpec>& wanted() {
  static const std::vector<TensorSpec> specs = {matrix_spec("a", {2, 2}, {{"a"}})};
  return specs;
}

TEST(WeightSet, ScaleInAnotherShard) {
  const TempFolder folder;
  save_two_shards(folder);
  save(folder / "config.json", R"({"quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}})");
  Result<WeightSet> weights = fail(ErrorCode::kInternal, "not loaded");
  {
    const auto files = CheckpointFiles::open(folder.path());
    ASSERT_TRUE(files) << files.error().message;
    const auto resolved = resolve(*files, wanted(), {}, {});
    ASSERT_TRUE(resolved) << resolved.error().message;
    EXPECT_EQ(resolved->accounting().dialect, "fp8");
    EXPECT_EQ(resolved->accounting().formats.at("fp8-block").bytes, 8U);
    weights = load(*resolved, {});
  }
  // The weights keep both files mapped.
  ASSERT_TRUE(weights) << weights.error().message;
  EXPECT_EQ(values(*weights->matrix("a")), (std::vector<float>{3, 3, 3, 3}));
  EXPECT_FALSE(weights->matrix("b"));
  EXPECT_FALSE(weights->experts("b"));
  EXPECT_FALSE(weights->vector("a"));
}

TEST(WeightSet, ConfigsBesideTheWeights) {
  const TempFolder folder;
  save_two_shards(folder);
  const auto resolved = [&] {
    const auto files = CheckpointFiles::open(folder.path());
    EXPECT_TRUE(files);
    return resolve(*files, wanted(), {}, {});
  };
  save(folder / "hf_quant_config.json", R"({"quantization": {"quant_algo": "FP8"}})");
  ASSERT_TRUE(resolved());
  EXPECT_EQ(resolved()->accounting().dialect, "modelopt");
  EXPECT_TRUE(resolved()->accounting().problems.empty());
  save(folder / "config.json", R"({"text_config": {"quantization_config": {"quant_method": "awq"}}})");
  EXPECT_TRUE(fails_with(resolved(), {"AWQ"}));
  save(folder / "config.json", R"({"quantization_config": )");
  EXPECT_TRUE(fails_with(resolved(), {"config.json"}));
}

TEST(WeightSet, FileThatChangesMeanwhile) {
  const TempFolder folder;
  save_two_shards(folder);
  const auto files = CheckpointFiles::open(folder.path());
  ASSERT_TRUE(files);
  const auto resolved = resolve(*files, wanted(), {}, {});
  ASSERT_TRUE(resolved);
  std::ofstream(folder / "model-1.safetensors", std::ios::app) << "more";
  const auto weights = load(*resolved, {});
  ASSERT_FALSE(weights);
  EXPECT_EQ(weights.error().code, ErrorCode::kIo);
}

}  // namespace
}  // namespace vernier::test
