// Where the tests' files are: tests/data of the source tree, or what the environment variable VERNIER_TEST_DATA says,
// for test programs that run on another machine than they were built on.
#pragma once

#include <cstdlib>
#include <string>
#include <string_view>

namespace vernier::test {

/// The path of `name` ("zoo", "format/e2m1.bin") within the test data.
[[nodiscard]] inline std::string test_data(std::string_view name) {
  const char* const moved = std::getenv("VERNIER_TEST_DATA");
  std::string path = moved != nullptr ? moved : VERNIER_TEST_DATA;
  return path.append("/").append(name);
}

}  // namespace vernier::test
