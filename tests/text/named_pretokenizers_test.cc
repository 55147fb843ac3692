#include "text/named_pretokenizers.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "text/text_test_data.h"
#include "text/unicode.h"

namespace vernier::text_internal {
namespace {

class NamedPreTokenizers : public testing::TestWithParam<const char*> {};

// The pieces of each hard string, by their lengths, equal those that the reference library cuts.
TEST_P(NamedPreTokenizers, PiecesEqual) {
  const auto* named = std::ranges::find(kNamedPreTokenizers, std::string_view(GetParam()), &NamedPreTokenizer::name);
  ASSERT_NE(named, kNamedPreTokenizers.end());
  PreTokenizer pre_tokenizer;
  ASSERT_TRUE(add_named_steps(*named, pre_tokenizer));
  RegexScratch scratch;
  std::size_t strings = 0;
  for_each_json_line("pieces-" + std::string(GetParam()) + ".jsonl", [&](const Json& line) {
    const auto number = static_cast<std::size_t>(line.find("i")->as_int64());
    const std::u32string text = decode_text(hard_strings()[number]);
    SplitText split{named->nfc ? normalize_nfc(text) : text, {}, true};
    if (!split.text.empty()) split.pieces.push_back({0, split.text.size()});
    ASSERT_TRUE(pre_tokenizer.apply(split, scratch));
    std::vector<std::int32_t> lengths;
    for (const SplitText::Piece& piece : split.pieces) {
      lengths.push_back(static_cast<std::int32_t>(piece.end - piece.begin));
    }
    EXPECT_EQ(lengths, ids_of(*line.find("pieces"))) << "string " << number;
    ++strings;
  });
  EXPECT_EQ(strings, 340U);
}

INSTANTIATE_TEST_SUITE_P(All, NamedPreTokenizers,
                         testing::Values("gpt-2", "mpt", "smollm", "starcoder", "refact", "command-r", "llama-bpe",
                                         "qwen2", "qwen35", "gpt-4o", "tekken", "falcon", "deepseek-llm",
                                         "deepseek-coder", "deepseek-v3"));

}  // namespace
}  // namespace vernier::text_internal
