#include "bench/test_plan.h"

#include <charconv>
#include <optional>

#include "bench/list.h"

namespace vernier::bench {
namespace {

constexpr std::int32_t kMaxTokens = 1 << 24;
constexpr std::int32_t kMaxSequences = 1024;
constexpr std::size_t kMaxItems = 64;

/// A number without sign in low..high that is all of `text`.
std::optional<std::int32_t> parse_count(std::string_view text, std::int32_t low, std::int32_t high) {
  std::int32_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool whole = error == std::errc() && end == text.data() + text.size() && !text.empty() && text[0] != '-';
  return whole && value >= low && value <= high ? std::optional(value) : std::nullopt;
}

std::optional<Test> parse_test(std::string_view text) {
  Test test;
  if (const std::size_t times = text.find('x'); times != std::string_view::npos) {
    const auto sequences = parse_count(text.substr(times + 1), 1, kMaxSequences);
    if (!sequences) return std::nullopt;
    test.sequences = *sequences;
    text = text.substr(0, times);
  }
  const std::vector<std::string_view> parts = split_list(text, '+');
  if (parts.size() > 2) return std::nullopt;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const bool is_prompt = parts[i].starts_with("pp");
    if (!is_prompt && !parts[i].starts_with("tg")) return std::nullopt;
    if (is_prompt != (i == 0) && parts.size() == 2) return std::nullopt;  // a mix is written pp first
    const auto count = parse_count(parts[i].substr(2), 1, kMaxTokens);
    if (!count) return std::nullopt;
    (is_prompt ? test.prompt : test.generated) = *count;
  }
  return test;
}

}  // namespace

std::string Test::name() const {
  std::string text;
  if (prompt > 0) text += fmt::format("pp{}", prompt);
  if (generated > 0) text += fmt::format("{}tg{}", text.empty() ? "" : "+", generated);
  if (sequences > 1) text += fmt::format("x{}", sequences);
  return text;
}

Result<std::vector<Test>> parse_tests(std::string_view text) {
  std::vector<Test> tests;
  for (const std::string_view part : split_list(text)) {
    const auto test = parse_test(part);
    if (!test) {
      return fail_with_hint(
          ErrorCode::kInvalidArgument,
          "tests are written pp512 (a prompt of 512 tokens), tg128 (128 tokens generated), tg64x16 (in "
          "16 sequences at once) or pp512+tg128",
          "--tests: '{}' is no test", escape(part));
    }
    tests.push_back(*test);
  }
  if (tests.size() > kMaxItems) {
    return fail(ErrorCode::kInvalidArgument, "--tests: {} tests, at most {} are taken", tests.size(), kMaxItems);
  }
  return tests;
}

Result<std::vector<std::int32_t>> parse_depths(std::string_view text) {
  std::vector<std::int32_t> depths;
  for (const std::string_view part : split_list(text)) {
    const auto depth = parse_count(part, 0, kMaxTokens);
    if (!depth) {
      return fail(ErrorCode::kInvalidArgument, "--depth: '{}' is no number of tokens in 0..{}", escape(part),
                  kMaxTokens);
    }
    depths.push_back(*depth);
  }
  if (depths.size() > kMaxItems) {
    return fail(ErrorCode::kInvalidArgument, "--depth: {} depths, at most {} are taken", depths.size(), kMaxItems);
  }
  return depths;
}

}  // namespace vernier::bench
