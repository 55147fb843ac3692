// Operations on UTF-8 text counted in code points, as Python's str sees it. Plain strings in and out; what they cost
// is paid by the callers.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace vernier::jinja {

[[nodiscard]] std::size_t count_code_points(std::string_view text);
/// Byte offset of code point `index`, or text.size() when there are fewer.
[[nodiscard]] std::size_t byte_offset(std::string_view text, std::size_t index);
/// Byte position of the first occurrence of `needle` at or after `from`, or npos. Linear time, unlike std::string's.
[[nodiscard]] std::size_t find_text(std::string_view text, std::string_view needle, std::size_t from = 0);
[[nodiscard]] std::vector<char32_t> to_code_points(std::string_view text);

/// Python's str.isspace() for one character.
[[nodiscard]] bool is_space(char32_t code_point);
/// A character that Python's repr() shows as it is; the rest is escaped.
[[nodiscard]] bool is_printable(char32_t code_point);
// str.isalpha(), isdecimal(), isdigit(), isupper() and islower() for one character.
[[nodiscard]] bool is_alphabetic(char32_t code_point);
[[nodiscard]] bool is_decimal(char32_t code_point);
[[nodiscard]] bool is_digit(char32_t code_point);
[[nodiscard]] bool is_cased_upper(char32_t code_point);
[[nodiscard]] bool is_cased_lower(char32_t code_point);

/// Strips white space, or the characters of `chars` when it isn't null, from the chosen ends.
struct StripEnds {
  bool left = true;
  bool right = true;
};
[[nodiscard]] std::string_view strip(std::string_view text, const std::string_view* chars, StripEnds ends);

// Case mappings with Unicode's full mapping for single characters; no locale.
void append_upper(std::string& out, char32_t code_point);
void append_lower(std::string& out, char32_t code_point);
[[nodiscard]] std::string to_upper(std::string_view text);
[[nodiscard]] std::string to_lower(std::string_view text);
/// Python's str.title(): the first cased letter of each run upper, the others lower.
[[nodiscard]] std::string to_title(std::string_view text);
[[nodiscard]] std::string to_capitalized(std::string_view text);
[[nodiscard]] std::string to_swapped_case(std::string_view text);

/// Calls `use` for the pieces of `text` between line ends (\n, \r\n, \r, \v, \f, FS, GS, RS, NEL, LS, PS), as
/// str.splitlines() gives them.
void for_each_line(std::string_view text, bool keep_ends, const std::function<void(std::string_view)>& use);

}  // namespace vernier::jinja
