// Tests under tools that make them tens of times as slow.
#pragma once

#include <cstdlib>
#include <cstring>
#include <vector>

#include "support/random_weight.h"

namespace vernier::test {

/// How often to repeat what a test repeats: `often`, or `seldom` under such a tool (bench/sanitize_cuda.py says so in
/// VERNIER_TEST_UNDER_TOOL, which names the tool). Only for repetitions: what is repeated stays the same, at least to a
/// GPU, for which it is all one how many threads a backend of the host would have.
[[nodiscard]] inline int repetitions(int often, int seldom) {
  return std::getenv("VERNIER_TEST_UNDER_TOOL") == nullptr ? often : seldom;
}

/// What tests of products with many tokens go through: all formats, or four, of different kinds, under racecheck, which
/// would take minutes for each of those tests. It sees all formats with few tokens, and linears of all with many.
[[nodiscard]] inline std::vector<FormatCase> formats_for_many_tokens() {
  const char* const tool = std::getenv("VERNIER_TEST_UNDER_TOOL");
  std::vector<FormatCase> formats = all_format_cases();
  if (tool == nullptr || std::strcmp(tool, "racecheck") != 0) return formats;
  constexpr std::size_t kStride = 6;
  std::vector<FormatCase> some;
  for (std::size_t i = 2; i < formats.size(); i += kStride) some.push_back(formats[i]);
  return some;
}

}  // namespace vernier::test
