// The literals of the template language: names, numbers and strings with Python's escapes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace vernier::jinja {

/// End of the name that begins at `at` (letters, underscores, then digits too); `at` itself where none begins.
[[nodiscard]] std::size_t name_end(std::string_view source, std::size_t at);
[[nodiscard]] constexpr bool is_ascii_digit(char ch) { return ch >= '0' && ch <= '9'; }

struct NumberToken {
  std::string text;  // without underscores
  bool is_float = false;
  std::size_t end = 0;
};
/// The number that begins at `at`, where a digit stands.
[[nodiscard]] NumberToken scan_number(std::string_view source, std::size_t at);

struct StringToken {
  std::string text;
  std::size_t end = 0;
};
/// The string literal that begins at `at`, where a quote stands.
[[nodiscard]] Result<StringToken> scan_string(std::string_view source, std::size_t at, std::uint32_t line);

}  // namespace vernier::jinja
