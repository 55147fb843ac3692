// Tests under tools that make them tens of times as slow.
#pragma once

#include <algorithm>
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

/// Whether racecheck watches, to which every access of a thread to shared memory is an event. Tests that would take it
/// minutes then have fewer cases, but launch the same kernels.
[[nodiscard]] inline bool is_under_racecheck() {
  const char* const tool = std::getenv("VERNIER_TEST_UNDER_TOOL");
  return tool != nullptr && std::strcmp(tool, "racecheck") == 0;
}

/// What tests of products with many tokens go through: all formats, or four, of different kinds, under racecheck, which
/// would take minutes for each of those tests. It sees all formats with few tokens, and linears of all with many.
[[nodiscard]] inline std::vector<FormatCase> formats_for_many_tokens() {
  std::vector<FormatCase> formats = all_format_cases();
  if (!is_under_racecheck()) return formats;
  constexpr std::size_t kStride = 6;
  std::vector<FormatCase> some;
  for (std::size_t i = 2; i < formats.size(); i += kStride) some.push_back(formats[i]);
  return some;
}

/// Whether `format` isn't among those, so that one product of each kernel has to do.
[[nodiscard]] inline bool is_brief(const FormatCase& format) {
  const std::vector<FormatCase> formats = formats_for_many_tokens();
  return std::none_of(formats.begin(), formats.end(), [&](const FormatCase& of) { return of.name == format.name; });
}

}  // namespace vernier::test
