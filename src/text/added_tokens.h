// Tokens that are found in the text as such, before the model sees what lies between them.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/hash.h"
#include "text/vocabulary.h"

namespace vernier::text_internal {

struct AddedToken {
  std::u32string text;
  TokenId id = 0;
  bool special = false;      ///< not found where the caller doesn't want control tokens
  bool single_word = false;  ///< no word character may be beside it
  bool strip_left = false;   ///< takes the white space before it
  bool strip_right = false;  ///< takes the white space behind it
  bool normalized = false;   ///< looked for after normalisation
};

/// A set of added tokens, searched leftmost and longest. Immutable once built.
class AddedTokenMatcher {
 public:
  static constexpr std::size_t kMaxTokenCharacters = 512;

  /// A half-open range of characters.
  struct Range {
    std::size_t begin;
    std::size_t end;
  };
  /// A token found, or (id -1) the text between two.
  struct Part {
    TokenId id;
    std::size_t begin;
    std::size_t end;
  };
  struct Options {
    bool find_special = true;
    std::span<const Range> literal;  ///< ascending ranges in which special tokens aren't found
  };

  AddedTokenMatcher() = default;
  static Result<AddedTokenMatcher> build(std::vector<AddedToken> tokens);

  [[nodiscard]] bool empty() const { return tokens_.empty(); }
  /// Cuts a text at the tokens in it; no part is empty.
  [[nodiscard]] std::vector<Part> split(std::u32string_view text, const Options& options) const;

 private:
  [[nodiscard]] const AddedToken* longest_at(std::u32string_view text, std::size_t at) const;

  std::vector<AddedToken> tokens_;
  IntegerMap<std::uint32_t> edges_;     // (node << 32 | character) -> node; the root is 0
  std::vector<std::int32_t> token_at_;  // by node: index into tokens_ or -1
};

}  // namespace vernier::text_internal
