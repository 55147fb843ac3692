// Headers with as many entries as the limits allow: linear time, memory in proportion.
#include <gtest/gtest.h>

#include <chrono>

#include "checkpoint/checkpoint_files.h"
#include "checkpoint/gguf.h"
#include "checkpoint/safetensors.h"
#include "support/gguf_builder.h"
#include "support/safetensors_builder.h"

namespace vernier {
namespace {

/// Generous for slow and shared machines and for sanitizers: what it must catch is quadratic work, which takes minutes.
constexpr std::chrono::seconds kPatience(10);

template <class Function>
std::chrono::duration<double> seconds_of(Function&& function) {
  const auto start = std::chrono::steady_clock::now();
  function();
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  std::printf("%.3f s\n", seconds.count());
  return seconds;
}

TEST(LargeHeader, C11ManyKeys) {
  test::GgufBuilder gguf;
  for (int i = 0; i < 65'536; ++i) gguf.u32("some.key.with.a.long.common.prefix." + std::to_string(i), 1);
  const auto file = gguf.file();
  EXPECT_LT(seconds_of([&] { ASSERT_TRUE(GgufFile::open(file)); }), kPatience);
}

TEST(LargeHeader, C46ManyTensorsGguf) {
  test::GgufBuilder gguf;
  for (int i = 0; i < 131'072; ++i) {
    gguf.f32_tensor("blk." + std::to_string(i % 64) + ".some_tensor_of_it." + std::to_string(i), {1}, {0});
  }
  const auto file = gguf.file();
  EXPECT_LT(seconds_of([&] {
              const auto checkpoint = CheckpointFiles::from_gguf(file);
              ASSERT_TRUE(checkpoint);
              ASSERT_EQ(checkpoint->tensors().size(), 131'072U);
              ASSERT_NE(checkpoint->find("blk.1.some_tensor_of_it.65"), nullptr);
            }),
            kPatience);
}

TEST(LargeHeader, C46ManyTensorsSafetensors) {
  test::SafetensorsBuilder builder;
  for (int i = 0; i < 150'000; ++i) {
    builder.tensor("model.layers." + std::to_string(i % 64) + ".mlp.experts.weight." + std::to_string(i), "U8", {1, 1},
                   "x");
  }
  const auto file = builder.file();
  EXPECT_LT(seconds_of([&] {
              const auto read = SafetensorsFile::open(file);
              ASSERT_TRUE(read) << read.error().message;
              ASSERT_EQ(read->tensors().size(), 150'000U);
            }),
            kPatience);
}

TEST(LargeHeader, AVocabularyIsNotCopied) {
  test::GgufBuilder gguf;
  std::vector<std::string> tokens(250'000);
  for (std::size_t i = 0; i < tokens.size(); ++i) tokens[i] = "token" + std::to_string(i);
  gguf.strings("tokenizer.ggml.tokens", tokens);
  const auto file = gguf.file();
  EXPECT_LT(seconds_of([&] {
              const auto read = GgufFile::open(file);
              ASSERT_TRUE(read);
              const auto strings = read->metadata().find_strings("tokenizer.ggml.tokens");
              ASSERT_EQ((*strings)->views().back(), "token249999");
            }),
            kPatience);
}

}  // namespace
}  // namespace vernier
