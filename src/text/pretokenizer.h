// Splits a normalised stretch of text into the pieces that the model then takes one by one.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/result.h"
#include "text/text_pattern.h"

namespace vernier::text_internal {

/// Where the matches of a splitting step go.
enum class SplitBehavior : std::uint8_t {
  kRemoved,
  kIsolated,
  kMergedWithPrevious,
  kMergedWithNext,
  kContiguous,  ///< neighbouring matches are one piece
};

/// Cuts each piece at the matches of a pattern.
struct SplitStep {
  TextPattern pattern;
  SplitBehavior behavior = SplitBehavior::kIsolated;
  bool invert = false;  ///< what lies between the matches counts as the matches
};
/// Cuts each piece at characters of a class.
struct SplitClassStep {
  bool (*matches)(char32_t) = nullptr;
  SplitBehavior behavior = SplitBehavior::kIsolated;
};
/// Puts a character before pieces that don't begin with it.
struct PrefixStep {
  char32_t character = U' ';
  bool first_only = false;  ///< only before the piece at the beginning of the whole text
};
struct ReplaceSpacesStep {
  char32_t replacement = U'\u2581';
};
/// Maps each byte of the text's UTF-8 to the character that stands for it in byte-level vocabularies.
struct ByteLevelStep {};
using PreTokenizerStep = std::variant<SplitStep, SplitClassStep, PrefixStep, ReplaceSpacesStep, ByteLevelStep>;

/// A text and the pieces of it, in order, none empty.
struct SplitText {
  struct Piece {
    std::size_t begin;
    std::size_t end;
  };
  std::u32string text;
  std::vector<Piece> pieces;
  bool at_text_begin = false;  ///< the first piece begins where the whole text does

  [[nodiscard]] std::u32string_view view(const Piece& piece) const {
    return std::u32string_view(text).substr(piece.begin, piece.end - piece.begin);
  }
};

/// Steps in order, each on every piece that the steps before left; immutable once built.
class PreTokenizer {
 public:
  template <class Step>
  void add(Step step) {
    // In place: moving the variant makes g++ 12 warn of uninitialised members.
    steps_.emplace_back(std::in_place_type<Step>, std::move(step));
  }
  /// `text.pieces` holds one piece, the whole text, or none.
  Status apply(SplitText& text, RegexScratch& scratch) const;

 private:
  std::vector<PreTokenizerStep> steps_;
};

/// The character that stands for a byte in byte-level vocabularies, and back (-1: for none).
[[nodiscard]] char32_t byte_level_character(std::uint8_t byte);
[[nodiscard]] int byte_of_level_character(char32_t c);

}  // namespace vernier::text_internal
