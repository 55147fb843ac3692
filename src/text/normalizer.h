// What is done to a stretch of text before it is split: normalisation forms, lower case, replacements.
#pragma once

#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/result.h"
#include "text/text_pattern.h"

namespace vernier::text_internal {

struct NfcStep {};
struct NfkcStep {};
struct LowercaseStep {};
struct StripStep {
  bool left = true;
  bool right = true;
};
/// Puts a text before the stretch, unless that is empty.
struct PrependStep {
  std::u32string text;
};
struct ReplaceStep {
  TextPattern pattern;
  std::u32string content;
};
using NormalizerStep = std::variant<NfcStep, NfkcStep, LowercaseStep, StripStep, PrependStep, ReplaceStep>;

/// Steps in order; immutable once built.
class Normalizer {
 public:
  /// No step may make a text longer than this, in characters, or than kMaxGrowth times what it was at first.
  static constexpr std::size_t kMaxCharacters = std::size_t{128} << 20U;
  static constexpr std::size_t kMaxGrowth = 32;

  template <class Step>
  void add(Step step) {
    // In place: moving the variant makes g++ 12 warn of uninitialised members.
    steps_.emplace_back(std::in_place_type<Step>, std::move(step));
  }
  [[nodiscard]] bool empty() const { return steps_.empty(); }
  [[nodiscard]] Result<std::u32string> apply(std::u32string text, RegexScratch& scratch) const;

 private:
  std::vector<NormalizerStep> steps_;
};

/// Replaces every match of the step's pattern. The error is a result of more than `max_characters`.
Result<std::u32string> replace_matches(const ReplaceStep& step, std::u32string_view text, std::size_t max_characters,
                                       RegexScratch& scratch);

}  // namespace vernier::text_internal
