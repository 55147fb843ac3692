// The bytes of each token in decoded text, worked out once, and the stream of them made into well-formed UTF-8.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/result.h"
#include "text/normalizer.h"
#include "text/vocabulary.h"

namespace vernier::text_internal {

/// How token texts become text.
struct DecoderOptions {
  bool byte_level = false;            ///< characters of the byte-level alphabet become bytes
  bool byte_fallback = false;         ///< "<0xXX>" tokens become a byte
  std::vector<ReplaceStep> replaces;  ///< on each token's text, before byte_fallback
  char32_t metaspace = 0;             ///< not 0: becomes a space, and in the first token nothing (with drop_first)
  bool drop_first = false;
  char32_t strip_character = U' ';  ///< this many of it at the beginning of the whole result are dropped
  std::uint32_t strip_left = 0;
  bool join_with_space = false;  ///< no decoder: tokens are joined with spaces
};

/// The state of one stream of ids.
struct DecodeState {
  bool at_start = true;  // no token yet
  std::uint32_t strip_left = 0;
  std::string held;  // an incomplete character
};

/// Immutable; shared by all streams of a tokenizer.
class TokenDecoder {
 public:
  static Result<TokenDecoder> build(const Vocabulary& vocabulary, DecoderOptions options);

  /// The bytes of a token (not at the beginning of a text).
  [[nodiscard]] std::string_view bytes(TokenId id) const;
  [[nodiscard]] DecodeState start() const { return {true, options_.strip_left, {}}; }
  /// Appends what is certain after one more token.
  void push(DecodeState& state, TokenId id, bool skip_special, std::string& out) const;
  /// Appends the rest and resets the state.
  void finish(DecodeState& state, std::string& out) const;

 private:
  explicit TokenDecoder(const Vocabulary& vocabulary, DecoderOptions options)
      : vocabulary_(&vocabulary), options_(std::move(options)) {}

  [[nodiscard]] Result<std::string> decode_token(TokenId id, RegexScratch& scratch) const;
  [[nodiscard]] std::string first_token_bytes(TokenId id) const;
  void emit(DecodeState& state, bool last, std::string& out) const;

  const Vocabulary* vocabulary_;
  DecoderOptions options_;
  std::string arena_;
  std::vector<std::uint32_t> offsets_;  // by id, one more than there are ids
};

}  // namespace vernier::text_internal
