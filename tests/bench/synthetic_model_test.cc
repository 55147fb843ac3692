// Synthetic checkpoints: true shapes, every tensor accounted for, the same bytes however many threads made them.
#include "bench/synthetic_model.h"

#include <gtest/gtest.h>

#include "bench/model_bench.h"
#include "bench/shape_list.h"
#include "format/format_list.h"

namespace vernier::bench {
namespace {

TEST(SyntheticModel, HasAsManyParametersAsThePublishedOne) {
  // Of the text models, without vision and without a multi-token prediction block.
  const std::pair<const char*, std::uint64_t> expected[] = {
      {"llama-3.1-8b", 8030261248},    {"llama-3.2-1b", 1235814400},    {"qwen3-4b", 4022468096},
      {"qwen3-30b-a3b", 30532122624},  {"gpt-oss-20b", 20914757184},    {"gpt-oss-120b", 116829156672},
      {"qwen35-35b-a3b", 34660610688}, {"gemma4-26b-a4b", 25233141790}, {"smollm2-135m", 134515008}};
  for (const auto& [name, parameters] : expected) {
    const auto model = SyntheticModel::plan({.shape = name});
    ASSERT_TRUE(model.has_value()) << name << ": " << model.error().message;
    const Accounting& account = model->opened().resolved.accounting();
    EXPECT_EQ(account.parameters, parameters) << name;
    EXPECT_TRUE(account.problems.empty()) << name << ": " << account.problems.front().message;
    EXPECT_EQ(account.refused, 0U) << name;
    EXPECT_TRUE(account.ignored.empty()) << name;
  }
}

TEST(SyntheticModel, EveryShapeResolvesInEveryFormatThatFitsIt) {
  const auto shapes = shape_list();
  ASSERT_TRUE(shapes.has_value());
  for (const Shape& shape : *shapes) {
    if (!shape.name.starts_with("tiny-")) continue;
    for (const FormatInfo& info : kFormats) {
      for (const char* container : {"", "gguf"}) {
        if (info.gguf_type == kNoGgufType && *container != '\0') continue;
        const auto model =
            SyntheticModel::plan({.shape = shape.name, .format = std::string(info.name), .container = container});
        ASSERT_TRUE(model.has_value()) << shape.name << " " << info.name << ": " << model.error().message;
        const Accounting& account = model->opened().resolved.accounting();
        EXPECT_TRUE(account.problems.empty()) << shape.name << ": " << account.problems.front().message;
        EXPECT_TRUE(account.formats.contains(std::string(info.name))) << shape.name << " " << info.name;
      }
    }
  }
}

TEST(SyntheticModel, LayersCutTheDepthAlone) {
  const auto whole = SyntheticModel::plan({.shape = "gpt-oss-20b"});
  const auto cut = SyntheticModel::plan({.shape = "gpt-oss-20b", .layers = 2});
  ASSERT_TRUE(whole && cut);
  EXPECT_EQ(cut->opened().description.config.num_layers, 2);
  const auto parameters = [](const SyntheticModel& model) { return model.opened().resolved.accounting().parameters; };
  const std::uint64_t tables = 2ULL * 201088 * 2880 + 2880;  // embedding, head, last norm
  EXPECT_EQ((parameters(*whole) - tables) / 24, (parameters(*cut) - tables) / 2);
  for (const std::int32_t layers : {-1, 25}) {
    EXPECT_FALSE(SyntheticModel::plan({.shape = "gpt-oss-20b", .layers = layers})) << layers;
  }
}

TEST(SyntheticModel, BytesDependOnTheSeedAndNotOnThreads) {
  const auto bytes = [](std::uint64_t seed, int threads) {
    auto model = SyntheticModel::plan({.shape = "tiny-gpt-oss", .seed = seed});
    model->fill(threads);
    std::vector<std::byte> all;
    for (const auto& file : model->opened().files.files()) {
      const auto span = *file->bytes({0, file->size()});
      all.insert(all.end(), span.begin(), span.end());
    }
    return all;
  };
  EXPECT_EQ(bytes(1, 1), bytes(1, 2));
  EXPECT_NE(bytes(1, 1), bytes(2, 1));
}

TEST(SyntheticModel, PassesTheScanOfWeights) {
  for (const char* shape : {"tiny-qwen35moe", "tiny-gpt-oss", "tiny-gemma4", "tiny-qwen3"}) {
    auto model = SyntheticModel::plan({.shape = shape});
    ASSERT_TRUE(model.has_value());
    model->fill(2);
    const auto weights = load(model->opened().resolved, {.check_blocks = true, .threads = 2});
    ASSERT_TRUE(weights.has_value()) << weights.error().message;
    EXPECT_TRUE(weights->warnings.empty());
  }
}

/// As converters write a BF16 router.
TEST(SyntheticModel, RoutersOfGgufAreF32WithNumbersOfBF16) {
  auto model = SyntheticModel::plan({.shape = "tiny-qwen3moe", .container = "gguf"});
  ASSERT_TRUE(model.has_value());
  model->fill(1);
  const auto weights = load(model->opened().resolved, {.check_blocks = true, .threads = 1});
  ASSERT_TRUE(weights.has_value()) << weights.error().message;
  std::size_t routers = 0;
  for (const TensorRecord& record : model->opened().files.tensors()) {
    if (record.name.find("ffn_gate_inp") == std::string::npos) continue;
    ++routers;
    EXPECT_EQ(record.type_name, "f32");
    const auto bytes = *record.file->bytes(record.extent);
    for (std::size_t at = 0; at < bytes.size(); at += 4) EXPECT_EQ(bytes[at] | bytes[at + 1], std::byte{0});
  }
  EXPECT_GT(routers, 0U);
}

TEST(SyntheticModel, BadNamesAreUsage) {
  const SyntheticOptions bad[] = {{.shape = "llama"},
                                  {.shape = "tiny-llama", .format = "q9_9"},
                                  {.shape = "tiny-llama", .container = "onnx"},
                                  {.shape = "tiny-llama", .format = "q8_0", .container = "safetensors"},
                                  {.shape = "tiny-llama", .format = "fp8-block", .container = "gguf"},
                                  {.shape = "smollm2-135m", .format = "q4_k"}};
  for (const SyntheticOptions& options : bad) {
    const auto model = SyntheticModel::plan(options);
    ASSERT_FALSE(model.has_value()) << options.shape << options.format << options.container;
    EXPECT_EQ(model.error().code, ErrorCode::kInvalidArgument);
  }
}

TEST(ModelBench, LogitsOfSyntheticModelsAreFinite) {
  const auto shapes = shape_list();
  for (const Shape& shape : *shapes) {
    if (!shape.name.starts_with("tiny-")) continue;
    ModelBenchOptions options;
    options.engine.device = "cpu";
    options.engine.threads = 1;
    options.synthetic = SyntheticOptions{.shape = shape.name};
    options.tests = {{.prompt = 8, .generated = 2, .sequences = 2}};
    options.depths = {0, 40};
    auto bench = ModelBench::open(options);
    ASSERT_TRUE(bench.has_value()) << shape.name << ": " << bench.error().message;
    for (const std::int32_t depth : options.depths) {
      const auto result = bench->run(options.tests[0], depth, /*repeat=*/0);
      ASSERT_TRUE(result.has_value()) << shape.name << " at " << depth << ": " << result.error().message;
    }
  }
}

}  // namespace
}  // namespace vernier::bench
