// tokenizer.json: parts that the golden vocabularies don't have, and refusals.
#include <gtest/gtest.h>

#include "text/text_test_data.h"
#include "text/tokenizer.h"

namespace vernier {
namespace {

using Ids = std::vector<std::int32_t>;

/// A tokenizer.json with a small model and the given other members (each with a comma before it).
std::string json_with(std::string_view others,
                      std::string_view model = R"("vocab":{"a":0,"b":1,"ab":2,"▁":3,"<u>":4},"merges":[["a","b"]])") {
  return fmt::format(R"({{"model":{{"type":"BPE",{}}}{}}})", model, others);
}

std::string refusal(const std::string& json) {
  const auto tokenizer = Tokenizer::from_json(json);
  return tokenizer ? "" : tokenizer.error().message;
}

Ids encode(const std::string& json, std::string_view text) {
  const auto tokenizer = Tokenizer::from_json(json);
  if (!tokenizer) {
    ADD_FAILURE() << tokenizer.error().message;
    return {};
  }
  return *(*tokenizer)->encode(text);
}

TEST(TokenizerJson, MergesAsStringsOrPairs) {
  EXPECT_EQ(encode(json_with(""), "abb"), (Ids{2, 1}));
  EXPECT_EQ(encode(json_with("", R"("vocab":{"a":0,"b":1,"ab":2},"merges":["a b"])"), "abb"), (Ids{2, 1}));
}

TEST(TokenizerJson, UnknownCharacters) {
  const std::string vocab = R"("unk_token":"<u>","vocab":{"a":0,"b":1,"ab":2,"<u>":4},"merges":[["a","b"]])";
  EXPECT_EQ(encode(json_with("", vocab), "xyaz"), (Ids{4, 4, 0, 4}));
  EXPECT_EQ(encode(json_with("", R"("fuse_unk":true,)" + vocab), "xyaz"), (Ids{4, 0, 4}));
  EXPECT_EQ(encode(json_with(""), "xya"), (Ids{0}));
}

TEST(TokenizerJson, RobertaAndSequencePostProcessors) {
  EXPECT_EQ(encode(json_with(R"(,"post_processor":{"type":"RobertaProcessing","cls":["a",0],"sep":["b",1]})"), "ab"),
            (Ids{0, 2, 1}));
  const std::string nested = R"(,"post_processor":{"type":"Sequence","processors":[{"type":"ByteLevel"},
      {"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"b"}},{"Sequence":{"id":"A"}}],
       "special_tokens":{"b":{"ids":[1]}}}]})";
  EXPECT_EQ(encode(json_with(nested), "ab"), (Ids{1, 2}));
}

TEST(TokenizerJson, StripReplaceAndPrependNormalizers) {
  const std::string steps = R"(,"normalizer":{"type":"Sequence","normalizers":[{"type":"Strip"},
      {"type":"Replace","pattern":{"Regex":"x+"},"content":"b"},{"type":"Prepend","prepend":"▁"}]})";
  EXPECT_EQ(encode(json_with(steps), " \u3000axx\n"), (Ids{3, 2}));
  EXPECT_EQ(encode(json_with(steps), " \n"), Ids{});
}

TEST(TokenizerJson, SplitBehaviors) {
  const auto pieces = [](std::string_view behavior, bool invert) {
    const std::string json = json_with(
        fmt::format(R"(,"pre_tokenizer":{{"type":"Split","pattern":{{"String":"-"}},"behavior":"{}","invert":{}}})",
                    behavior, invert),
        R"("ignore_merges":true,"vocab":{"a":0,"-":1,"a-":2,"-a":3,"--":4,"a--":5,"a--a":6},"merges":[])");
    return encode(json, "a--a");
  };
  EXPECT_EQ(pieces("Isolated", false), (Ids{0, 1, 1, 0}));
  EXPECT_EQ(pieces("Removed", false), (Ids{0, 0}));
  EXPECT_EQ(pieces("Removed", true), (Ids{1, 1}));
  EXPECT_EQ(pieces("Contiguous", false), (Ids{0, 4, 0}));
  EXPECT_EQ(pieces("MergedWithPrevious", false), (Ids{2, 1, 0}));
  EXPECT_EQ(pieces("MergedWithNext", false), (Ids{0, 1, 3}));
}

TEST(TokenizerJson, DigitsAndPunctuation) {
  const std::string model = R"("ignore_merges":true,"vocab":{"1":0,"12":1,"!":2,"!?":3,"?":4},"merges":[])";
  const auto with = [&](std::string_view part) {
    return json_with(fmt::format(R"(,"pre_tokenizer":{})", part), model);
  };
  EXPECT_EQ(encode(with(R"({"type":"Digits"})"), "12"), (Ids{1}));
  EXPECT_EQ(encode(with(R"({"type":"Punctuation"})"), "12!?"), (Ids{1, 2, 4}));
  EXPECT_EQ(encode(with(R"({"type":"Punctuation","behavior":"Contiguous"})"), "12!?"), (Ids{1, 3}));
}

TEST(TokenizerJson, WithoutADecoderTokensAreJoinedWithSpaces) {
  EXPECT_EQ(Tokenizer::from_json(json_with("")).value()->decode(Ids{0, 2, 1}, false), "a ab b");
}

TEST(TokenizerJson, BeginAndEndComeFromTheConfiguration) {
  const auto tokenizer =
      Tokenizer::from_json(json_with(""), R"({"bos_token":{"content":"a"},"eos_token":"b","pad_token":null})").value();
  EXPECT_EQ(tokenizer->bos_id(), 0);
  EXPECT_EQ(tokenizer->eos_id(), 1);
  EXPECT_EQ(tokenizer->padding_id(), std::nullopt);
  ASSERT_EQ(tokenizer->end_of_generation_ids().size(), 1U);
  EXPECT_FALSE(tokenizer->add_bos());
}

TEST(TokenizerJson, UnsupportedPartsAreNamed) {
  const auto names = [](const std::string& message, std::string_view part) {
    EXPECT_NE(message.find("'" + std::string(part) + "' isn't supported"), std::string::npos) << message;
  };
  names(refusal(json_with(R"(,"normalizer":{"type":"Nmt"})")), "Nmt");
  names(refusal(json_with(R"(,"pre_tokenizer":{"type":"BertPreTokenizer"})")), "BertPreTokenizer");
  names(refusal(json_with(R"(,"post_processor":{"type":"BertProcessing"})")), "BertProcessing");
  names(refusal(json_with(R"(,"decoder":{"type":"WordPiece"})")), "WordPiece");
  names(refusal(R"({"model":{"type":"WordPiece","vocab":{}}})"), "WordPiece");
  EXPECT_NE(refusal(json_with("", R"("dropout":0.1,"vocab":{},"merges":[])")).find("dropout"), std::string::npos);
  EXPECT_NE(refusal(json_with("", R"("end_of_word_suffix":"</w>","vocab":{},"merges":[])")).find("end_of_word_suffix"),
            std::string::npos);
  EXPECT_NE(refusal(json_with(R"(,"decoder":{"type":"Sequence","decoders":[{"type":"Fuse"},{"type":"ByteFallback"}]})"))
                .find("at this place"),
            std::string::npos);
}

TEST(TokenizerJson, PathologicalRegexesAreRefusedOrLinear) {
  const auto with = [](std::string_view pattern) {
    return json_with(fmt::format(
        R"(,"pre_tokenizer":{{"type":"Split","pattern":{{"Regex":"{}"}},"behavior":"Isolated"}})", pattern));
  };
  EXPECT_EQ(encode(with("(a+)+$"), std::string(100000, 'a') + "b").back(), 2);
  EXPECT_NE(refusal(with("(a*)*$")).find("may match the empty text"), std::string::npos);
  EXPECT_NE(refusal(with("(a")).find("regular expression"), std::string::npos);
}

TEST(TokenizerJson, BadMergesAreNamedByNumber) {
  const auto with_merges = [](std::string_view merges) {
    return refusal(
        json_with("", fmt::format(R"("vocab":{{"a":0,"b":1,"ab":2,"":3}},"merges":[["a","b"],{}])", merges)));
  };
  EXPECT_EQ(with_merges(R"(["a","z"])"), "model.merges: merge 2 ('a' 'z'): 'z' isn't in the vocabulary");
  EXPECT_EQ(with_merges(R"(["a","b"])"), "model.merges: merge 2 ('a' 'b') is listed twice");
  EXPECT_EQ(with_merges(R"(["a",""])"), "model.merges: merge 2 has an empty side");
  for (const char* merge : {R"("ab")", R"("a b c")", R"(["a"])", "7", "null", R"(["a",1])", R"("")"}) {
    EXPECT_NE(with_merges(merge).find("merge 2"), std::string::npos) << merge;
  }
}

TEST(TokenizerJson, ContradictoryIdsAreRefused) {
  EXPECT_NE(refusal(json_with("", R"("vocab":{"a":0,"b":0},"merges":[])")).find("same id 0"), std::string::npos);
  for (const char* id : {"-1", "1.5", "\"0\"", "4194304", "99999999999999999999", "null", "3000000"}) {
    EXPECT_NE(refusal(json_with("", fmt::format(R"("vocab":{{"a":{}}},"merges":[])", id))), "") << id;
  }
  EXPECT_NE(refusal(json_with(R"(,"added_tokens":[{"id":0,"content":"z"}])")).find("has the id 0 of 'a'"),
            std::string::npos);
  EXPECT_NE(refusal(json_with(R"(,"added_tokens":[{"id":9,"content":"a"}])")).find("in the vocabulary it has 0"),
            std::string::npos);
  EXPECT_NE(refusal(json_with(R"(,"post_processor":{"type":"RobertaProcessing","cls":["a",77],"sep":["b",1]})")), "");
  EXPECT_NE(refusal(json_with("", R"("unk_token":"<none>","vocab":{},"merges":[])")).find("unk_token"),
            std::string::npos);
}

TEST(TokenizerJson, UnigramScoresAndIds) {
  const auto unigram = [](std::string_view members) {
    return refusal(fmt::format(R"({{"model":{{"type":"Unigram",{}}}}})", members));
  };
  EXPECT_EQ(unigram(R"("vocab":[["a",-1],["b",-2.5]],"unk_id":0)"), "");
  EXPECT_NE(unigram(R"("vocab":[["a",-1]],"unk_id":1)").find("unk_id"), std::string::npos);
  EXPECT_NE(unigram(R"("vocab":[["a"]])").find("vocab[0]"), std::string::npos);
  EXPECT_NE(unigram(R"("vocab":{"a":0})"), "");
  const auto without_unknown = Tokenizer::from_json(R"({"model":{"type":"Unigram","vocab":[["a",-1]]}})").value();
  EXPECT_EQ(*without_unknown->encode("aa"), (Ids{0, 0}));
  EXPECT_FALSE(without_unknown->encode("ab"));
}

TEST(TokenizerJson, EveryTruncationIsAnError) {
  const std::string whole = read_text_data("bpe-metaspace-first.tokenizer.json");
  for (std::size_t size = 0; size + 1 < whole.size(); size += 97) {
    EXPECT_FALSE(Tokenizer::from_json(std::string_view(whole).substr(0, size))) << size;
  }
  for (const char* text : {"", "null", "[]", "{}", R"({"model":null})", R"({"model":[]})", R"({"model":{}})"}) {
    EXPECT_FALSE(Tokenizer::from_json(text)) << text;
  }
}

TEST(TokenizerJson, TextsThatAreTooLongAreRefused) {
  const auto tokenizer = Tokenizer::from_json(json_with("")).value();
  const auto ids = tokenizer->encode(std::string(Tokenizer::kMaxTextBytes + 1, 'a'));
  ASSERT_FALSE(ids);
  EXPECT_EQ(ids.error().code, ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace vernier
