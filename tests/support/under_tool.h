// Tests under tools that make them tens of times as slow.
#pragma once

#include <cstdlib>

namespace vernier::test {

/// How often to repeat what a test repeats: `often`, or `seldom` under such a tool (bench/sanitize_cuda.py says so in
/// VERNIER_TEST_UNDER_TOOL). Only for repetitions: what is repeated stays the same, at least to a GPU, for which it is
/// all one how many threads a backend of the host would have.
[[nodiscard]] inline int repetitions(int often, int seldom) {
  return std::getenv("VERNIER_TEST_UNDER_TOOL") == nullptr ? often : seldom;
}

}  // namespace vernier::test
