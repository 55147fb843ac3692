// The steps of normalisers, and the search that Replace and Split share.
#include "text/normalizer.h"

#include <algorithm>
#include <utility>

#include "text/unicode.h"

namespace vernier::text_internal {
namespace {

std::u32string strip(std::u32string_view text, const StripStep& step) {
  std::size_t begin = 0;
  std::size_t end = text.size();
  while (step.left && begin < end && is_white_space(text[begin])) ++begin;
  while (step.right && end > begin && is_white_space(text[end - 1])) --end;
  return std::u32string(text.substr(begin, end - begin));
}

struct StepRunner {
  std::u32string text;
  std::size_t max_characters;
  RegexScratch& scratch;

  Result<std::u32string> operator()(const NfcStep&) { return normalize_nfc(text); }
  Result<std::u32string> operator()(const NfkcStep&) { return normalize_nfkc(text); }
  Result<std::u32string> operator()(const LowercaseStep&) { return lower_case(text); }
  Result<std::u32string> operator()(const StripStep& step) { return strip(text, step); }
  Result<std::u32string> operator()(const PrependStep& step) { return text.empty() ? text : step.text + text; }
  Result<std::u32string> operator()(const ReplaceStep& step) {
    return replace_matches(step, text, max_characters, scratch);
  }
};

}  // namespace

Result<std::vector<Regex::Match>> find_matches(const TextPattern& pattern, std::u32string_view text,
                                               RegexScratch& scratch) {
  if (const auto* regex = std::get_if<Regex>(&pattern)) return regex->find_all(text, scratch);
  const std::u32string& literal = std::get<std::u32string>(pattern);
  std::vector<Regex::Match> matches;
  for (std::size_t at = text.find(literal); at != std::u32string_view::npos; at = text.find(literal, at)) {
    matches.push_back({at, at + literal.size()});
    at += literal.size();
  }
  return matches;
}

Result<std::u32string> replace_matches(const ReplaceStep& step, std::u32string_view text, std::size_t max_characters,
                                       RegexScratch& scratch) {
  VN_ASSIGN(const std::vector<Regex::Match> matches, find_matches(step.pattern, text, scratch));
  const std::size_t room = max_characters - std::min(max_characters, text.size());
  if (!step.content.empty() && matches.size() > room / step.content.size()) {
    return fail(ErrorCode::kUnsupported, "replacements make a text longer than {} characters", max_characters);
  }
  std::u32string out;
  std::size_t begin = 0;
  for (const Regex::Match& match : matches) {
    out.append(text.substr(begin, match.begin - begin)).append(step.content);
    begin = match.end;
  }
  out.append(text.substr(begin));
  return out;
}

Result<std::u32string> Normalizer::apply(std::u32string text, RegexScratch& scratch) const {
  constexpr std::size_t kShort = 4096;  // what counts as the length of shorter texts
  const std::size_t max_characters = std::min(kMaxCharacters, kMaxGrowth * std::max(text.size(), kShort));
  for (const NormalizerStep& step : steps_) {
    VN_ASSIGN(text, std::visit(StepRunner{std::move(text), max_characters, scratch}, step));
    if (text.size() > max_characters) {
      return fail(ErrorCode::kUnsupported, "normalised text of more than {} characters", max_characters);
    }
  }
  return text;
}

}  // namespace vernier::text_internal
