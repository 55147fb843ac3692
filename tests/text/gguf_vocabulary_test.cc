// Vocabularies of GGUF files: defaults, and what hostile or damaged ones are refused with.
#include "text/gguf_vocabulary.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "text/tokenizer.h"

namespace vernier {
namespace {

/// A byte-level vocabulary of five letters, two merges and the end of text.
GgufVocabulary small_gpt2() {
  GgufVocabulary gguf;
  gguf.model = "gpt2";
  gguf.pre = "gpt-2";
  gguf.tokens = {"a", "b", "c", "ab", "abc", "<|end|>", "[PAD6]"};
  gguf.token_types = {1, 1, 1, 1, 1, 3, 4};
  gguf.merges = {"a b", "ab c"};
  gguf.eos_id = 5;
  return gguf;
}

GgufVocabulary small_llama() {
  GgufVocabulary gguf;
  gguf.model = "llama";
  gguf.tokens = {"<unk>", "<s>", "</s>", "\u2581", "a", "b", "ab", "aa", "\u2581a", "<0x21>"};
  gguf.token_types = {2, 3, 3, 1, 1, 1, 1, 1, 1, 6};
  gguf.scores = {0, 0, 0, -5, -6, -7, -2, -2, -3, 0};
  gguf.bos_id = 1;
  gguf.eos_id = 2;
  gguf.unknown_id = 0;
  return gguf;
}

std::vector<std::int32_t> encode(const GgufVocabulary& gguf, std::string_view text) {
  const auto tokenizer = Tokenizer::from_vocabulary(gguf);
  if (!tokenizer) {
    ADD_FAILURE() << tokenizer.error().message;
    return {};
  }
  return *(*tokenizer)->encode(text);
}

/// The message that a changed vocabulary is refused with, or "".
std::string refusal(GgufVocabulary gguf, const std::function<void(GgufVocabulary&)>& change) {
  change(gguf);
  const auto tokenizer = Tokenizer::from_vocabulary(std::move(gguf));
  return tokenizer ? "" : tokenizer.error().message;
}

using Ids = std::vector<std::int32_t>;

TEST(GgufVocabulary, MergesByRankAndKeepsWhatHasNoToken) {
  EXPECT_EQ(encode(small_gpt2(), "abcab"), (Ids{4, 3}));
  EXPECT_EQ(encode(small_gpt2(), "a?b"), (Ids{0, 1}));
  EXPECT_EQ(encode(small_gpt2(), "a<|end|>b[PAD6]"), (Ids{0, 5, 1}));
  EXPECT_EQ(Tokenizer::from_vocabulary(small_gpt2()).value()->decode(Ids{4, 6, 0}, false), "abca");
}

TEST(GgufVocabulary, ScoresDecideAndTiesGoToTheLeft) {
  EXPECT_EQ(encode(small_llama(), "ab"), (Ids{1, 3, 6}));      // "ab" before "▁a"
  EXPECT_EQ(encode(small_llama(), "aab"), (Ids{1, 3, 7, 5}));  // "aa" and "ab" are as good
  EXPECT_EQ(encode(small_llama(), "a!?"), (Ids{1, 8, 9, 0}));  // byte token, and unknown where that is missing too
  EXPECT_EQ(encode(small_llama(), ""), (Ids{1}));
}

TEST(GgufVocabulary, SpacePrefixGoesBeforeEachStretch) {
  EXPECT_EQ(encode(small_llama(), "a</s>a"), (Ids{1, 8, 2, 8}));
  GgufVocabulary without = small_llama();
  without.add_space_prefix = false;
  EXPECT_EQ(encode(without, "a</s> a"), (Ids{1, 4, 2, 8}));
}

TEST(GgufVocabulary, BeginAndEndOfText) {
  GgufVocabulary gguf = small_llama();
  gguf.add_bos = false;
  gguf.add_eos = true;
  EXPECT_EQ(encode(gguf, "a"), (Ids{8, 2}));
  const auto tokenizer = Tokenizer::from_vocabulary(gguf).value();
  EXPECT_FALSE(tokenizer->add_bos());
  EXPECT_TRUE(tokenizer->add_eos());
  EXPECT_EQ(tokenizer->bos_id(), 1);
  EXPECT_NE(refusal(small_gpt2(), [](auto& g) { g.add_bos = true; }).find("bos_token_id"), std::string::npos);
}

TEST(GgufVocabulary, EndOfGenerationIsKnownByText) {
  GgufVocabulary gguf = small_gpt2();
  gguf.tokens = {"<|eot_id|>", "<|im_end|>", "</s>", "x"};
  gguf.token_types = {3, 4, 1, 1};
  gguf.merges.clear();
  gguf.eos_id = 3;
  const auto tokenizer = Tokenizer::from_vocabulary(gguf).value();
  const auto ends = tokenizer->end_of_generation_ids();
  EXPECT_EQ(Ids(ends.begin(), ends.end()), (Ids{0, 1, 3}));  // "</s>" is ordinary text here
}

TEST(GgufVocabulary, EndOfMessageIsNoEndWhereAnswersHaveTheirOwn) {
  GgufVocabulary gguf = small_gpt2();
  gguf.tokens = {"<|end|>", "<|return|>", "<|call|>"};
  gguf.token_types = {3, 3, 3};
  gguf.merges.clear();
  gguf.eos_id = 1;
  const auto tokenizer = Tokenizer::from_vocabulary(gguf).value();
  const auto ends = tokenizer->end_of_generation_ids();
  EXPECT_EQ(Ids(ends.begin(), ends.end()), (Ids{1, 2}));
}

TEST(GgufVocabulary, UnknownModelsAndPreTokenizersNameTheKnownOnes) {
  EXPECT_EQ(refusal(small_gpt2(), [](auto& g) { g.model = "bert"; }),
            "tokenizer.ggml.model 'bert' isn't supported (known: gpt2, llama, gemma4)");
  const std::string pre = refusal(small_gpt2(), [](auto& g) { g.pre = "klingon"; });
  EXPECT_NE(pre.find("'klingon'"), std::string::npos);
  EXPECT_NE(pre.find("llama-bpe"), std::string::npos);
  EXPECT_NE(refusal(small_gpt2(), [](auto& g) { g.pre = ""; }), "");
}

TEST(GgufVocabulary, BadMergesAreNamedByNumber) {
  const auto with_merge = [](const std::string& merge) {
    return refusal(small_gpt2(), [&](auto& g) { g.merges.push_back(merge); });
  };
  EXPECT_EQ(with_merge("a z"), "tokenizer.ggml.merges: merge 3 ('a' 'z'): 'z' isn't in the vocabulary");
  EXPECT_EQ(with_merge("b c"), "tokenizer.ggml.merges: merge 3 ('b' 'c'): 'bc' isn't in the vocabulary");
  EXPECT_EQ(with_merge("a b"), "tokenizer.ggml.merges: merge 3 ('a' 'b') is listed twice");
  EXPECT_NE(with_merge("ab").find("merge 3 ('ab') isn't two tokens"), std::string::npos);
  EXPECT_NE(with_merge("").find("merge 3"), std::string::npos);
  EXPECT_NE(with_merge(" a").find("merge 3"), std::string::npos);
  EXPECT_NE(with_merge("a ").find("merge 3 has an empty side"), std::string::npos);
  EXPECT_NE(refusal(small_gpt2(), [](auto& g) { g.merges.assign((1U << 22U) + 1, "a b"); }).find("more than 4194304"),
            std::string::npos);
}

TEST(GgufVocabulary, MalformedByteTokensAreOrdinaryText) {
  GgufVocabulary gguf = small_llama();
  for (const char* text : {"<0x-1>", "<0xGG>", "<0x0>", "<0xab>", "<0x041>"}) {
    gguf.tokens.emplace_back(text);
    gguf.token_types.push_back(6);
    gguf.scores.push_back(0);
  }
  const auto tokenizer = Tokenizer::from_vocabulary(gguf).value();
  EXPECT_EQ(tokenizer->decode(Ids{10, 11, 12, 13, 14, 9}, false), "<0x-1><0xGG><0x0><0xab><0x041>!");
  EXPECT_EQ(encode(gguf, "\x01"), (Ids{1, 3, 0}));
}

TEST(GgufVocabulary, ScoresAndTypesMustFit) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_NE(refusal(small_llama(), [&](auto& g) { g.scores[4] = nan; }).find("score of token 4"), std::string::npos);
  EXPECT_NE(refusal(small_llama(), [&](auto& g) { g.scores[4] = infinity; }).find("score of token 4"),
            std::string::npos);
  EXPECT_EQ(refusal(small_llama(), [](auto& g) { g.scores.pop_back(); }),
            "tokenizer.ggml.scores: 9 scores for 10 tokens");
  EXPECT_NE(refusal(small_llama(), [](auto& g) { g.scores.clear(); }), "");
  EXPECT_EQ(refusal(small_llama(), [](auto& g) { g.token_types[3] = 77; }),
            "tokenizer.ggml.token_type[3] is 77, expected 1 to 6");
  EXPECT_EQ(refusal(small_llama(), [](auto& g) { g.token_types.pop_back(); }),
            "tokenizer.ggml.token_type has 9 values for 10 tokens");
}

TEST(GgufVocabulary, TokenTextsOfAnyKind) {
  GgufVocabulary gguf = small_llama();
  for (const std::string& text : {std::string(), std::string("\xFF\xFE"), std::string("x\0y", 3), std::string("a")}) {
    gguf.tokens.push_back(text);  // empty, ill-formed, with a NUL, and one that exists already
    gguf.token_types.push_back(1);
    gguf.scores.push_back(0);
  }
  const auto tokenizer = Tokenizer::from_vocabulary(gguf).value();
  EXPECT_EQ(tokenizer->decode(Ids{10, 11, 12, 13}, false), std::string("\uFFFD\uFFFDx\0ya", 10));
  EXPECT_EQ(tokenizer->find_token("a"), 4);
  EXPECT_EQ(*tokenizer->encode(""), (Ids{1}));
  EXPECT_NE(refusal(small_llama(), [](auto& g) { g.tokens[4] = std::string((64U << 10U) + 1, 'a'); }).find("65536"),
            std::string::npos);
  EXPECT_NE(refusal(small_llama(), [](auto& g) { g.tokens[1] = std::string(1000, 'a'); }).find("added token 1"),
            std::string::npos);
  EXPECT_NE(refusal(small_llama(), [](auto& g) { g.tokens.clear(); }), "");
}

TEST(GgufVocabulary, IdsMustLieWithin) {
  EXPECT_EQ(refusal(small_llama(), [](auto& g) { g.padding_id = -1; }), "");
  EXPECT_EQ(refusal(small_llama(), [](auto& g) { g.padding_id = 10; }),
            "tokenizer.ggml.padding_token_id is 10, outside the vocabulary of 10 tokens");
  for (const std::int64_t id : {std::int64_t{4294967295}, std::int64_t{-2}, std::numeric_limits<std::int64_t>::min()}) {
    EXPECT_NE(refusal(small_llama(), [&](auto& g) { g.bos_id = id; }).find("bos_token_id"), std::string::npos);
    EXPECT_NE(refusal(small_llama(), [&](auto& g) { g.eos_id = id; }).find("eos_token_id"), std::string::npos);
    EXPECT_NE(refusal(small_llama(), [&](auto& g) { g.eot_id = id; }).find("eot_token_id"), std::string::npos);
  }
}

}  // namespace
}  // namespace vernier
