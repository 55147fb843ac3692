// What a Tokenizer is made of, and the two loaders that make it. Internal to text/.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <variant>
#include <vector>

#include "base/result.h"
#include "text/added_tokens.h"
#include "text/bpe.h"
#include "text/gguf_vocabulary.h"
#include "text/normalizer.h"
#include "text/pretokenizer.h"
#include "text/score_bpe.h"
#include "text/token_decoder.h"
#include "text/unigram.h"
#include "text/vocabulary.h"

namespace vernier::text_internal {

/// Not movable: models and decoder point at the vocabulary.
struct TokenizerParts {
  TokenizerParts() = default;
  TokenizerParts(const TokenizerParts&) = delete;
  TokenizerParts& operator=(const TokenizerParts&) = delete;

  Vocabulary vocabulary;
  AddedTokenMatcher raw_tokens;         // looked for in the text as it is
  AddedTokenMatcher normalized_tokens;  // looked for in what the normaliser makes of it
  // The same two sets with the special ones of the second moved to the first, for requests with literal ranges: those
  // are positions in the text as it is.
  AddedTokenMatcher raw_tokens_and_special;
  AddedTokenMatcher normalized_tokens_not_special;
  Normalizer normalizer;
  PreTokenizer pre_tokenizer;
  std::variant<std::monostate, BpeModel, ScoreBpeModel, UnigramModel> model;
  std::vector<TokenId> prefix;  // around the ids of a text, with add_special
  std::vector<TokenId> suffix;
  std::optional<TokenDecoder> decoder;
  std::optional<TokenId> bos;
  std::optional<TokenId> eos;
  std::optional<TokenId> unknown;
  std::optional<TokenId> padding;
  std::vector<TokenId> end_of_generation;  // ascending

  /// Builds the four matchers; the texts of normalised tokens go through the normaliser first.
  Status set_added_tokens(const std::vector<AddedToken>& tokens);
};

Result<std::unique_ptr<const TokenizerParts>> load_tokenizer_json(std::string_view tokenizer_json,
                                                                  std::string_view tokenizer_config_json);
Result<std::unique_ptr<const TokenizerParts>> load_gguf_vocabulary(GgufVocabulary source);

}  // namespace vernier::text_internal
