#include "base/result.h"

#include <array>

#include "base/utf8.h"

namespace vernier {

std::string_view error_code_name(ErrorCode code) {
  static constexpr std::array<std::string_view, 10> kNames = {"invalid_argument", "not_found", "corrupt", "unsupported",
                                                              "out_of_memory",    "device",    "io",      "overloaded",
                                                              "cancelled",        "internal"};
  const auto index = static_cast<std::size_t>(code);
  return index < kNames.size() ? kNames[index] : "unknown";
}

Error with_context(Error error, std::string_view context) {
  if (error.message.starts_with(context)) return error;
  error.message = fmt::format("{}: {}", context, error.message);
  return error;
}

std::string escape(std::string_view text, std::size_t max_bytes) {
  std::string out;
  std::size_t at = 0;
  while (at < text.size()) {
    const Utf8Char ch = decode_utf8(text, at);
    std::string piece;
    if (!ch.valid) {
      for (std::size_t i = 0; i < ch.size; ++i)
        piece += fmt::format("\\x{:02X}", static_cast<unsigned char>(text[at + i]));
    } else if (ch.code_point == '\n') {
      piece = "\\n";
    } else if (ch.code_point == '\t') {
      piece = "\\t";
    } else if (ch.code_point == '\'' || ch.code_point == '\\') {
      piece = std::string("\\") + static_cast<char>(ch.code_point);
    } else if (ch.code_point < 0x20 || (ch.code_point >= 0x7F && ch.code_point < 0xA0) ||
               (ch.code_point >= 0x200B && ch.code_point <= 0x200F) ||
               (ch.code_point >= 0x2028 && ch.code_point <= 0x202E) ||
               (ch.code_point >= 0x2066 && ch.code_point <= 0x2069)) {  // controls and bidirectional marks
      piece = ch.code_point < 0x100 ? fmt::format("\\x{:02X}", static_cast<unsigned>(ch.code_point))
                                    : fmt::format("\\u{{{:X}}}", static_cast<unsigned>(ch.code_point));
    } else {
      piece = std::string(text.substr(at, ch.size));
    }
    if (out.size() + piece.size() > max_bytes) return out + "...";
    out += piece;
    at += ch.size;
  }
  return out;
}

}  // namespace vernier
