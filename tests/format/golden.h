// Reads the arrays that tools/make_format_goldens.py wrote.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "support/test_data.h"

namespace vernier::test {

/// The file tests/data/format/`name` as an array of T; an empty array (and a test failure) if it can't be read.
template <class T>
std::vector<T> read_golden(const std::string& name) {
  std::ifstream file(test_data("format/" + name), std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  EXPECT_FALSE(bytes.empty()) << name;
  EXPECT_EQ(bytes.size() % sizeof(T), 0u) << name;
  std::vector<T> values(bytes.size() / sizeof(T));
  if (!values.empty()) std::memcpy(values.data(), bytes.data(), values.size() * sizeof(T));
  return values;
}

/// Equal in every bit, so that zeros of different sign differ; any NaN equals any other.
template <class Real>
::testing::AssertionResult same_bits(Real actual, Real expected) {
  const bool both_nan = actual != actual && expected != expected;
  if (both_nan || std::memcmp(&actual, &expected, sizeof(Real)) == 0) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << actual << " instead of " << expected;
}

/// Bytes from hexadecimal digits; spaces don't matter.
inline std::vector<std::byte> from_hex(const std::string& digits) {
  std::vector<std::byte> bytes;
  std::string pair;
  for (const char c : digits) {
    if (c != ' ') pair += c;
    if (pair.size() == 2) {
      bytes.push_back(static_cast<std::byte>(std::stoi(pair, nullptr, 16)));
      pair.clear();
    }
  }
  return bytes;
}

}  // namespace vernier::test
