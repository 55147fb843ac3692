// Every stored case of every small vocabulary: ids and texts equal to those of the reference library.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>

#include "text/detokenizer.h"
#include "text/text_test_data.h"
#include "text/tokenizer.h"

namespace vernier {
namespace {

/// The expected ids of a case, which very long ones store as runs.
std::vector<std::int32_t> expected_ids(const Json& line) {
  const Json* runs = line.find("runs");
  if (runs == nullptr) return ids_of(*line.find("ids"));
  std::vector<std::int32_t> ids;
  for (const Json& run : runs->as_array()) {
    ids.insert(ids.end(), static_cast<std::size_t>(run.as_array()[1].as_int64()),
               static_cast<std::int32_t>(run.as_array()[0].as_int64()));
  }
  return ids;
}

void check_encoding(const Tokenizer& tokenizer, const Json& line) {
  const std::size_t number = static_cast<std::size_t>(line.find("s")->as_int64());
  const TokenizerOptions options{.add_special = line.find("add")->as_int64() != 0,
                                 .parse_special = line.find("parse")->as_int64() != 0,
                                 .literal_ranges = {}};
  const auto ids = tokenizer.encode(hard_strings()[number], options);
  ASSERT_TRUE(ids) << ids.error().message;
  EXPECT_TRUE(*ids == expected_ids(line))
      << "string " << number << " add_special " << options.add_special << " parse_special " << options.parse_special;
}

void check_decoding(const std::shared_ptr<const Tokenizer>& tokenizer, const Json& line) {
  const std::vector<std::int32_t> ids = ids_of(*line.find("ids"));
  const bool skip = line.find("skip")->as_int64() != 0;
  const std::string expected = line.find("text")->as_string();
  EXPECT_EQ(tokenizer->decode(ids, skip), expected);
  Detokenizer stream(tokenizer, skip);
  std::string streamed;
  for (const std::int32_t id : ids) streamed += stream.push(id);
  EXPECT_EQ(streamed + stream.finish(), expected);
}

void check_all(const std::shared_ptr<const Tokenizer>& tokenizer, const std::string& name, std::size_t expected_cases) {
  std::size_t cases = 0;
  for_each_json_line(name + ".jsonl", [&](const Json& line) {
    ++cases;
    if (line.find("s") != nullptr) {
      check_encoding(*tokenizer, line);
    } else {
      check_decoding(tokenizer, line);
    }
  });
  EXPECT_EQ(cases, expected_cases);
}

/// A vocabulary's name as GoogleTest takes it.
std::string test_name(std::string name) {
  std::ranges::replace(name, '-', '_');
  return name;
}

struct Vocabulary {
  const char* name;
  std::size_t cases;
};

class JsonGoldens : public testing::TestWithParam<Vocabulary> {};

TEST_P(JsonGoldens, AllCasesEqual) {
  const auto tokenizer = Tokenizer::from_json(read_text_data(std::string(GetParam().name) + ".tokenizer.json"));
  ASSERT_TRUE(tokenizer) << tokenizer.error().message;
  check_all(*tokenizer, GetParam().name, GetParam().cases);
}

INSTANTIATE_TEST_SUITE_P(All, JsonGoldens,
                         testing::Values(Vocabulary{"zoo-llama", 838}, Vocabulary{"zoo-qwen3", 838},
                                         Vocabulary{"zoo-qwen35", 838}, Vocabulary{"zoo-gpt-oss", 838},
                                         Vocabulary{"zoo-gemma4", 784}, Vocabulary{"unigram-metaspace", 787},
                                         Vocabulary{"bpe-added-options", 838}, Vocabulary{"bpe-metaspace-first", 787}),
                         [](const auto& test) { return test_name(test.param.name); });

struct GgufCase {
  const char* name;
  const char* model;
  const char* pre;
  const char* bos;
  std::size_t cases;
};

class GgufGoldens : public testing::TestWithParam<GgufCase> {};

// The same vocabularies as a GGUF would store them give the same ids: what the name of the pre-tokenizer implies stands
// in for what the tokenizer.json says.
TEST_P(GgufGoldens, AllCasesEqual) {
  const GgufCase& p = GetParam();
  GgufVocabulary gguf = to_gguf(read_text_data(std::string(p.name) + ".tokenizer.json"), p.model, p.pre);
  for (std::size_t i = 0; i < gguf.tokens.size(); ++i) {
    if (gguf.tokens[i] == p.bos) gguf.bos_id = static_cast<std::int64_t>(i);
    if (gguf.tokens[i] == "<unk>") gguf.unknown_id = static_cast<std::int64_t>(i);
  }
  const auto tokenizer = Tokenizer::from_vocabulary(std::move(gguf));
  ASSERT_TRUE(tokenizer) << tokenizer.error().message;
  check_all(*tokenizer, p.name, p.cases);
}

INSTANTIATE_TEST_SUITE_P(All, GgufGoldens,
                         testing::Values(GgufCase{"zoo-llama", "gpt2", "llama-bpe", "<|begin_of_text|>", 838},
                                         GgufCase{"zoo-qwen3", "gpt2", "qwen2", "", 838},
                                         GgufCase{"zoo-qwen35", "gpt2", "qwen35", "", 838},
                                         GgufCase{"zoo-gpt-oss", "gpt2", "gpt-4o", "", 838},
                                         GgufCase{"zoo-gemma4", "gemma4", "", "<bos>", 784}),
                         [](const auto& test) { return test_name(test.param.name); });

// Runs of one character or of a few in turn: time grows with the length, not with its square. The bound is loose, since
// a quadratic step would take minutes, and instrumented builds on busy machines are slow.
TEST(TokenizerTime, LongRunsAreLinear) {
  for (const char* name : {"zoo-llama", "zoo-gpt-oss", "zoo-gemma4", "unigram-metaspace", "bpe-added-options"}) {
    const auto tokenizer = Tokenizer::from_json(read_text_data(std::string(name) + ".tokenizer.json"));
    ASSERT_TRUE(tokenizer) << tokenizer.error().message;
    for (const char* unit : {" ", "\n", "7", "\u0301", "\u0301\u0316", "中", "👩\u200D", "!", " a", "\t "}) {
      std::string text;
      while (text.size() < (std::size_t{1} << 18U)) text += unit;
      const auto begin = std::chrono::steady_clock::now();
      const auto ids = (*tokenizer)->encode(text);
      const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
      EXPECT_TRUE(ids);
      EXPECT_LT(taken.count(), 10) << name << " with a run of '" << unit << "'";
    }
  }
}

}  // namespace
}  // namespace vernier
