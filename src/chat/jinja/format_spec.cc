#include "chat/jinja/format_spec.h"

#include <charconv>
#include <cmath>
#include <cstdio>

#include "chat/jinja/text_ops.h"
#include "chat/jinja/tokens.h"
#include "chat/jinja/value_text.h"

namespace vernier::jinja {
namespace {

/// Puts `mark` between groups of `size` digits of the whole part that ends at `end`.
void group_digits(std::string& digits, std::size_t end, std::size_t size, char mark) {
  for (std::size_t at = end; at > size; at -= size) digits.insert(at - size, 1, mark);
}

std::string sign_text(bool negative, char sign) {
  if (negative) return "-";
  return sign == '-' ? std::string() : std::string(1, sign);
}

}  // namespace

Result<std::optional<std::size_t>> read_size(std::string_view text, std::size_t& at, std::size_t limit) {
  if (at >= text.size() || !is_ascii_digit(text[at])) return std::optional<std::size_t>();
  std::size_t value = 0;
  for (; at < text.size() && is_ascii_digit(text[at]); ++at) {
    value = value * 10 + static_cast<std::size_t>(text[at] - '0');
    if (value > limit) return error("a format's width or precision is above {}", limit);
  }
  return std::optional(value);
}

void append_padded(TextBuilder& out, std::string_view body, const FormatSpec& spec, char default_align,
                   std::size_t sign_size) {
  const std::size_t length = count_code_points(body);
  const std::size_t missing = spec.width > length ? spec.width - length : 0;
  const char align = spec.align != '\0' ? spec.align : default_align;
  const std::size_t left = align == '<' ? 0 : (align == '^' ? missing / 2 : missing);
  if (align == '=') {
    out.append(body.substr(0, sign_size));
    body.remove_prefix(sign_size);
  }
  out.pad(spec.fill, left);
  out.append(body);
  out.pad(spec.fill, missing - left);
}

Result<NumberText> format_integer(std::int64_t value, const FormatSpec& spec) {
  const char type = spec.type == '\0' || spec.type == 'n' ? 'd' : spec.type;
  int base = 10;
  if (type == 'x' || type == 'X') base = 16;
  if (type == 'o') base = 8;
  if (type == 'b') base = 2;
  if (base == 10 && type != 'd') return error("Unknown format code '{}' for object of type 'int'", type);
  const bool negative = value < 0;
  const std::uint64_t magnitude = negative ? 0 - static_cast<std::uint64_t>(value) : static_cast<std::uint64_t>(value);
  char buffer[72];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, magnitude, base).ptr;
  std::string digits(buffer, end);
  if (type == 'X') digits = to_upper(digits);
  if (spec.grouping != '\0') group_digits(digits, digits.size(), base == 10 ? 3 : 4, spec.grouping);
  NumberText number{sign_text(negative, spec.sign), 0};
  if (spec.alternate && base != 10) number.text += std::string("0") + type;
  number.sign_size = number.text.size();
  number.text += digits;
  return number;
}

Result<NumberText> format_real(double value, const FormatSpec& spec) {
  const double magnitude = std::fabs(spec.type == '%' ? value * 100.0 : value);
  std::string digits;
  if (!std::isfinite(magnitude)) {
    digits = std::isnan(magnitude) ? "nan" : "inf";
    if (spec.type == 'E' || spec.type == 'F' || spec.type == 'G') digits = to_upper(digits);
  } else if (spec.type == '\0' && !spec.precision) {
    digits = float_text(magnitude);
  } else {
    const char type = spec.type == '\0' ? 'g' : (spec.type == '%' ? 'f' : spec.type);
    if (std::string_view("eEfFgG").find(type) == std::string_view::npos) {
      return error("Unknown format code '{}' for object of type 'float'", type);
    }
    const char pattern[] = {'%', '.', '*', type, '\0'};
    const char alternate[] = {'%', '#', '.', '*', type, '\0'};
    char buffer[kMaxFormatPrecision + 400];
    // Both patterns are built from the checked type above and take an int and a double.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    const int size = std::snprintf(buffer, sizeof buffer, spec.alternate ? alternate : pattern,
                                   spec.precision.value_or(6), magnitude);
#pragma GCC diagnostic pop
    digits.assign(buffer, static_cast<std::size_t>(size));
  }
  if (spec.grouping != '\0' && std::isfinite(magnitude)) {
    group_digits(digits, std::min(digits.find('.'), digits.size()), 3, spec.grouping);
  }
  NumberText number{sign_text(std::signbit(value), spec.sign), 0};
  number.sign_size = number.text.size();
  number.text += digits;
  if (spec.type == '%') number.text += '%';
  return number;
}

}  // namespace vernier::jinja
