#include "text/detokenizer.h"

#include <gtest/gtest.h>

#include "base/utf8.h"
#include "text/text_test_data.h"

namespace vernier {
namespace {

constexpr std::string_view kReplacement = "\uFFFD";

/// A llama vocabulary: <unk>, <s>, </s>, the 256 bytes, then "▁", "▁a", "b" and a character.
std::shared_ptr<const Tokenizer> byte_fallback_tokenizer(bool add_space_prefix) {
  GgufVocabulary gguf;
  gguf.model = "llama";
  gguf.tokens = {"<unk>", "<s>", "</s>"};
  gguf.token_types = {2, 3, 3};
  for (unsigned byte = 0; byte < 256; ++byte) {
    gguf.tokens.push_back(fmt::format("<0x{:02X}>", byte));
    gguf.token_types.push_back(6);
  }
  for (const char* text : {"\u2581", "\u2581a", "b", "é"}) {
    gguf.tokens.emplace_back(text);
    gguf.token_types.push_back(1);
  }
  gguf.scores.assign(gguf.tokens.size(), -1);
  gguf.bos_id = 1;
  gguf.eos_id = 2;
  gguf.unknown_id = 0;
  gguf.add_space_prefix = add_space_prefix;
  return *Tokenizer::from_vocabulary(std::move(gguf));
}

constexpr std::int32_t byte_id(int byte) { return 3 + byte; }
constexpr std::int32_t kSpace = 259;
constexpr std::int32_t kSpaceA = 260;
constexpr std::int32_t kB = 261;

TEST(Detokenizer, HoldsBackIncompleteCharacters) {
  Detokenizer stream(byte_fallback_tokenizer(false));
  EXPECT_EQ(stream.push(byte_id(0xF0)), "");
  EXPECT_EQ(stream.push(byte_id(0x9F)), "");
  EXPECT_EQ(stream.push(byte_id(0x98)), "");
  EXPECT_EQ(stream.push(byte_id(0x80)), "😀");
  EXPECT_EQ(stream.push(byte_id(0xE4)), "");
  EXPECT_EQ(stream.push(kB), std::string(kReplacement) + "b");
  EXPECT_EQ(stream.push(byte_id(0xC3)), "");
  EXPECT_EQ(stream.finish(), kReplacement);
  EXPECT_EQ(stream.finish(), "");
}

TEST(Detokenizer, InvalidBytesForEverStayValidText) {
  const auto tokenizer = byte_fallback_tokenizer(false);
  std::vector<std::int32_t> ids;
  std::uint32_t random = 1;
  for (int i = 0; i < 20000; ++i) {
    random = random * 1664525 + 1013904223;
    ids.push_back(byte_id(static_cast<int>(random >> 24U)));
  }
  Detokenizer stream(tokenizer);
  std::string joined;
  std::string bytes;
  for (const std::int32_t id : ids) {
    bytes += static_cast<char>(id - byte_id(0));
    const std::string part = stream.push(id);
    ASSERT_TRUE(is_valid_utf8(part));
    joined += part;
  }
  joined += stream.finish();
  EXPECT_EQ(joined, tokenizer->decode(ids, false));
  EXPECT_EQ(joined, replace_invalid_utf8(bytes));
}

TEST(Detokenizer, DropsOneLeadingSpaceOfTheWholeText) {
  Detokenizer stream(byte_fallback_tokenizer(true));
  EXPECT_EQ(stream.push(1), "");  // <s> is skipped and leaves the beginning where it is
  EXPECT_EQ(stream.push(kSpace), "");
  EXPECT_EQ(stream.push(kSpaceA), " a");
  EXPECT_EQ(stream.finish(), "");
  EXPECT_EQ(stream.push(kB), "b");
  EXPECT_EQ(stream.push(kSpaceA), " a");
  EXPECT_EQ(byte_fallback_tokenizer(true)->decode(std::vector<std::int32_t>{1, kSpaceA}, false), "<s> a");
}

TEST(Detokenizer, IdsWithoutATokenGiveNothing) {
  const auto tokenizer = byte_fallback_tokenizer(false);
  Detokenizer stream(tokenizer);
  for (const std::int32_t id : {-1, -2147483647, tokenizer->vocab_size(), 2147483647}) {
    EXPECT_EQ(stream.push(id), "");
    EXPECT_EQ(tokenizer->token_bytes(id), "");
    EXPECT_EQ(tokenizer->token_text(id), "");
    EXPECT_FALSE(tokenizer->is_special(id));
  }
}

TEST(Detokenizer, TokenBytes) {
  const auto tokenizer = byte_fallback_tokenizer(true);
  EXPECT_EQ(tokenizer->token_bytes(byte_id(0xF0)), "\xF0");
  EXPECT_EQ(tokenizer->token_bytes(kSpaceA), " a");
  EXPECT_EQ(tokenizer->token_text(kSpaceA), "\u2581a");
  EXPECT_EQ(tokenizer->find_token("\u2581a"), kSpaceA);
  EXPECT_EQ(tokenizer->find_token("nothing"), std::nullopt);
}

}  // namespace
}  // namespace vernier
