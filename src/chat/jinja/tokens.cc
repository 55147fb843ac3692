#include "chat/jinja/tokens.h"

#include <algorithm>
#include <optional>

#include "base/utf8.h"
#include "chat/jinja/lexer.h"
#include "chat/jinja/text_ops.h"

namespace vernier::jinja {
namespace {

int hex_digit(char ch) {
  if (is_ascii_digit(ch)) return ch - '0';
  if (ch >= 'a' && ch <= 'f') return ch - 'a' + 10;
  return ch >= 'A' && ch <= 'F' ? ch - 'A' + 10 : 99;
}

/// End of the digits of `base` at `at`; single underscores may stand between them.
std::size_t digits_end(std::string_view source, std::size_t at, int base) {
  while (at < source.size()) {
    const std::size_t digit = source[at] == '_' && at + 1 < source.size() ? at + 1 : at;
    if (hex_digit(source[digit]) >= base) break;
    at = digit + 1;
  }
  return at;
}

bool digit_at(std::string_view source, std::size_t at) { return at < source.size() && is_ascii_digit(source[at]); }

std::string without_underscores(std::string_view text) {
  std::string out(text);
  out.erase(std::remove(out.begin(), out.end(), '_'), out.end());
  return out;
}

/// Reads `count` hexadecimal digits, or nothing.
std::optional<char32_t> hexadecimal(std::string_view text, std::size_t at, std::size_t count) {
  char32_t value = 0;
  if (at + count > text.size()) return std::nullopt;
  for (std::size_t i = at; i < at + count; ++i) {
    const int digit = hex_digit(text[i]);
    if (digit > 15) return std::nullopt;
    value = value * 16 + static_cast<char32_t>(digit);
  }
  return value;
}

/// Appends what the escape at `at` (behind the backslash) stands for and returns where it ends.
Result<std::size_t> unescape(std::string& out, std::string_view body, std::size_t at, std::uint32_t line) {
  static constexpr std::string_view kNames = "\\'\"abfnrtv";
  static constexpr std::string_view kMeanings = "\\'\"\a\b\f\n\r\t\v";
  const char kind = body[at];
  if (kind == '\n') return at + 1;
  if (const std::size_t simple = kNames.find(kind); simple != std::string_view::npos) {
    out.push_back(kMeanings[simple]);
    return at + 1;
  }
  if (kind == 'x' || kind == 'u' || kind == 'U') {
    const std::size_t count = kind == 'x' ? 2 : (kind == 'u' ? 4 : 8);
    const auto code_point = hexadecimal(body, at + 1, count);
    if (!code_point || *code_point > 0x10FFFF) return syntax_error(line, fmt::format("invalid \\{} escape", kind));
    append_utf8(out, *code_point);
    return at + 1 + count;
  }
  if (kind >= '0' && kind <= '7') {
    char32_t value = 0;
    std::size_t end = at;
    while (end < body.size() && end < at + 3 && body[end] >= '0' && body[end] <= '7') {
      value = value * 8 + static_cast<char32_t>(body[end++] - '0');
    }
    append_utf8(out, value);
    return end;
  }
  if (kind == 'N') return syntax_error(line, "character names (\\N) are not supported");
  out.push_back('\\');  // Python keeps what it doesn't know
  return at;
}

}  // namespace

std::size_t name_end(std::string_view source, std::size_t at) {
  std::size_t end = at;
  while (end < source.size()) {
    const Utf8Char ch = decode_utf8(source, end);
    const bool letter = ch.code_point == '_' || is_alphabetic(ch.code_point);
    if (!letter && (end == at || !is_decimal(ch.code_point))) break;
    end += ch.size;
  }
  return end;
}

NumberToken scan_number(std::string_view source, std::size_t at) {
  if (source[at] == '0' && at + 1 < source.size()) {
    const char kind = static_cast<char>(source[at + 1] | 0x20);
    const int base = kind == 'x' ? 16 : (kind == 'o' ? 8 : (kind == 'b' ? 2 : 0));
    if (base != 0) {
      const std::size_t end = digits_end(source, at + 2, base);
      if (end > at + 2) return {without_underscores(source.substr(at, end - at)), false, end};
    }
  }
  const std::size_t whole = digits_end(source, at, 10);
  std::size_t end = whole;
  const bool after_dot = at > 0 && source[at - 1] == '.';  // x.1.2 are two subscripts
  if (!after_dot && end < source.size() && source[end] == '.' && digit_at(source, end + 1)) {
    end = digits_end(source, end + 1, 10);
  }
  if (!after_dot && end < source.size() && (source[end] | 0x20) == 'e') {
    const bool sign = end + 1 < source.size() && (source[end + 1] == '+' || source[end + 1] == '-');
    const std::size_t exponent = end + 1 + (sign ? 1 : 0);
    if (digit_at(source, exponent)) end = digits_end(source, exponent, 10);
  }
  return {without_underscores(source.substr(at, end - at)), end != whole, end};
}

Result<StringToken> scan_string(std::string_view source, std::size_t at, std::uint32_t line) {
  std::size_t end = at + 1;
  while (end < source.size() && source[end] != source[at]) end += source[end] == '\\' ? 2 : 1;
  if (end >= source.size())
    return syntax_error(line, fmt::format("unexpected char '{}'", escape(source.substr(at, 1))));
  const std::string_view body = source.substr(at + 1, end - at - 1);
  StringToken token;
  token.end = end + 1;
  token.text.reserve(body.size());
  for (std::size_t i = 0; i < body.size();) {
    if (body[i] != '\\') {
      token.text.push_back(body[i++]);
      continue;
    }
    VN_ASSIGN(i, unescape(token.text, body, i + 1, line));
  }
  return token;
}

}  // namespace vernier::jinja
