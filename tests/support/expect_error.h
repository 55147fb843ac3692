// Checks that a Result failed with a message that holds certain words.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/result.h"

namespace vernier::test {

/// Success when `result` is an error whose message and hint together hold all of `words`.
template <class T>
[[nodiscard]] testing::AssertionResult fails_with(const Result<T>& result, const std::vector<std::string>& words) {
  if (result) return testing::AssertionFailure() << "succeeded, expected an error";
  const std::string text = result.error().message + " | " + result.error().hint;
  for (const std::string& word : words) {
    if (text.find(word) == std::string::npos) return testing::AssertionFailure() << "no '" << word << "' in: " << text;
  }
  if (text.find('\n') != std::string::npos) return testing::AssertionFailure() << "more than one line: " << text;
  return testing::AssertionSuccess() << text;
}

}  // namespace vernier::test
