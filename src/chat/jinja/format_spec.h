// One formatted field, as both kinds of Python string formatting need it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "chat/jinja/builders.h"

namespace vernier::jinja {

/// [[fill]align][sign][#][0][width][,][.precision][type]
struct FormatSpec {
  char32_t fill = U' ';
  char align = '\0';  // < > ^ = or none
  char sign = '-';    // - + or space
  bool alternate = false;
  char grouping = '\0';  // , or _ or none
  std::size_t width = 0;
  std::optional<int> precision;
  char type = '\0';
};

constexpr std::size_t kMaxFormatWidth = 1U << 20U;
constexpr int kMaxFormatPrecision = 512;

/// Reads decimal digits at `at`, which moves behind them; an error above `limit`.
[[nodiscard]] Result<std::optional<std::size_t>> read_size(std::string_view text, std::size_t& at, std::size_t limit);

/// Appends `body` (code points counted) padded as the spec says. `sign_size` bytes at its front stay left of `=` fills.
void append_padded(TextBuilder& out, std::string_view body, const FormatSpec& spec, char default_align,
                   std::size_t sign_size = 0);

/// Sign, prefix and digits of a number for the types d, x, X, o, b, c-less, and e, E, f, F, g, G, %.
struct NumberText {
  std::string text;
  std::size_t sign_size = 0;  // of sign and prefix
};
[[nodiscard]] Result<NumberText> format_integer(std::int64_t value, const FormatSpec& spec);
[[nodiscard]] Result<NumberText> format_real(double value, const FormatSpec& spec);

}  // namespace vernier::jinja
