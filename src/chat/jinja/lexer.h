// Cuts template source into tokens: text, tags, and what stands in the tags. White space control (`-`, `+`,
// trim_blocks, lstrip_blocks), raw blocks and comments are settled here, as Jinja 3.1 does.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace vernier::jinja {

enum class TokenType : std::uint8_t {
  kText,
  kVariableBegin,
  kVariableEnd,
  kBlockBegin,
  kBlockEnd,
  kName,
  kString,
  kInteger,
  kFloat,
  kOperator,
  kEnd,
};

struct Token {
  TokenType type = TokenType::kEnd;
  std::uint32_t line = 1;
  std::string text;  // of operators and names: themselves; of strings: unescaped; of numbers: without underscores
};

/// What a message calls the token: "end of print statement", or its text.
[[nodiscard]] std::string describe(const Token& token);

/// The error of line `line` of the template.
[[nodiscard]] tl::unexpected<Error> syntax_error(std::uint32_t line, std::string_view message);

/// The tokens of well-formed UTF-8 source; the last is kEnd.
[[nodiscard]] Result<std::vector<Token>> tokenize(std::string_view source);

}  // namespace vernier::jinja
