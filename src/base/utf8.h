// UTF-8 decoding and encoding, one code point at a time. Nothing about categories or normalisation: see text/.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace vernier {

/// One step of decoding. When `valid` is false, `code_point` is U+FFFD and `size` is the length of the maximal
/// ill-formed subpart (Unicode 16, section 3.9, "U+FFFD Substitution of Maximal Subparts"), at least 1.
struct Utf8Char {
  char32_t code_point = 0;
  std::uint8_t size = 0;
  bool valid = false;
};

/// Decodes the code point that starts at byte `at`, which must be less than text.size().
[[nodiscard]] Utf8Char decode_utf8(std::string_view text, std::size_t at);

/// Appends the UTF-8 form of `code_point`; surrogates and values above U+10FFFF become U+FFFD.
void append_utf8(std::string& out, char32_t code_point);

/// True when the whole text is well-formed.
[[nodiscard]] bool is_valid_utf8(std::string_view text);

/// The text with every maximal ill-formed subpart replaced by U+FFFD.
[[nodiscard]] std::string replace_invalid_utf8(std::string_view text);

}  // namespace vernier
