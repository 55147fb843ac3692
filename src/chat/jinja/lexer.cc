#include "chat/jinja/lexer.h"

#include <algorithm>
#include <array>

#include "base/utf8.h"
#include "chat/jinja/text_ops.h"
#include "chat/jinja/tokens.h"

namespace vernier::jinja {
namespace {

/// Line ends become \n, and one at the very end is dropped.
std::string normalise(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (std::size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      out.push_back('\n');
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    } else {
      out.push_back(source[i]);
    }
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

std::size_t skip_space(std::string_view source, std::size_t at) {
  while (at < source.size()) {
    const Utf8Char ch = decode_utf8(source, at);
    if (!is_space(ch.code_point)) break;
    at += ch.size;
  }
  return at;
}

bool all_space(std::string_view text) { return skip_space(text, 0) == text.size(); }

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(source) {}

  Result<std::vector<Token>> run() {
    while (at_ < source_.size()) VN_TRY(next_tag());
    push(TokenType::kEnd, {});
    return std::move(tokens_);
  }

 private:
  [[nodiscard]] bool looking_at(std::string_view text, std::size_t at) const {
    return source_.substr(at, text.size()) == text;
  }
  void push(TokenType type, std::string_view text) { tokens_.push_back({type, line_, std::string(text)}); }
  /// Moves on to `to`, counting lines.
  void advance(std::size_t to) {
    line_ += static_cast<std::uint32_t>(std::count(source_.begin() + static_cast<std::ptrdiff_t>(at_),
                                                   source_.begin() + static_cast<std::ptrdiff_t>(to), '\n'));
    // Whether the next text begins a line decides what lstrip_blocks may strip.
    line_starting_ = to > 0 && to > at_ ? source_[to - 1] == '\n' : line_starting_;
    at_ = to;
  }

  /// Text up to the next tag, then the tag.
  Status next_tag() {
    std::size_t open = at_;
    for (;; ++open) {
      open = source_.find('{', open);
      if (open == std::string_view::npos || open + 1 >= source_.size()) {
        push(TokenType::kText, source_.substr(at_));
        advance(source_.size());
        return {};
      }
      const char second = source_[open + 1];
      if (second == '%' || second == '{' || second == '#') break;
    }
    const char kind = source_[open + 1];
    const char sign = open + 2 < source_.size() ? source_[open + 2] : '\0';
    push_text(open, sign, kind != '{');
    advance(open);
    const std::size_t inside = open + 2 + (sign == '-' || sign == '+' ? 1 : 0);
    if (kind == '#') return comment(inside);
    if (kind == '%') {
      if (const std::size_t end = raw_begin_end(inside); end != 0) return raw_block(end);
    }
    push(kind == '%' ? TokenType::kBlockBegin : TokenType::kVariableBegin, {});
    advance(inside);
    return tag_contents(kind == '%');
  }

  /// The text before a tag that begins at `open`, stripped as the tag's sign and lstrip_blocks say.
  void push_text(std::size_t open, char sign, bool lstrip) {
    std::string_view text = source_.substr(at_, open - at_);
    if (sign == '-') {
      text = strip(text, nullptr, {.left = false, .right = true});
    } else if (sign != '+' && lstrip) {
      const std::size_t line_start = text.rfind('\n') + 1;  // npos + 1 is 0
      if ((line_start > 0 || line_starting_) && all_space(text.substr(line_start))) text = text.substr(0, line_start);
    }
    if (!text.empty()) push(TokenType::kText, text);
  }

  /// End of a tag that closes with `close` at `at`, the white space it swallows included; 0 when it doesn't stand
  /// there.
  [[nodiscard]] std::size_t closing(std::size_t at, std::string_view close, bool block) const {
    if (looking_at(close, at)) {
      const std::size_t end = at + close.size();
      return block && end < source_.size() && source_[end] == '\n' ? end + 1 : end;
    }
    if (at >= source_.size() || !looking_at(close, at + 1)) return 0;
    if (source_[at] == '-') return skip_space(source_, at + 1 + close.size());
    return source_[at] == '+' && block ? at + 1 + close.size() : 0;
  }

  Status comment(std::size_t inside) {
    for (std::size_t at = inside; at < source_.size(); ++at) {
      at = source_.find('#', at);
      if (at == std::string_view::npos) break;
      if (!looking_at("#}", at)) continue;
      // A sign belongs to the closing tag, unless it is the opening one's.
      const bool has_sign = at > inside && (source_[at - 1] == '-' || source_[at - 1] == '+');
      advance(closing(has_sign ? at - 1 : at, "#}", true));
      return {};
    }
    return syntax_error(line_, "Missing end of comment tag");
  }

  /// If `raw` and a closing tag follow, the position behind that tag; else 0.
  [[nodiscard]] std::size_t raw_begin_end(std::size_t inside) const {
    std::size_t at = skip_space(source_, inside);
    if (!looking_at("raw", at)) return 0;
    at = skip_space(source_, at + 3);
    if (looking_at("%}", at)) return at + 2;
    return looking_at("-%}", at) ? skip_space(source_, at + 3) : 0;
  }

  Status raw_block(std::size_t begin) {
    const std::uint32_t first_line = line_;
    advance(begin);
    for (std::size_t open = source_.find("{%", begin); open != std::string_view::npos;
         open = source_.find("{%", open + 1)) {
      const char sign = open + 2 < source_.size() ? source_[open + 2] : '\0';
      std::size_t at = skip_space(source_, open + 2 + (sign == '-' || sign == '+' ? 1 : 0));
      if (!looking_at("endraw", at)) continue;
      at = skip_space(source_, at + 6);
      const std::size_t end = closing(at, "%}", true);
      if (end == 0) continue;
      push_text(open, sign, true);
      advance(end);
      return {};
    }
    return syntax_error(first_line, "Missing end of raw directive");
  }

  Status tag_contents(bool block) {
    std::vector<char> open_brackets;
    const std::string_view close = block ? "%}" : "}}";
    for (;;) {
      advance(skip_space(source_, at_));
      if (at_ >= source_.size()) return {};  // the parser reports the unfinished tag
      if (open_brackets.empty()) {
        if (const std::size_t end = closing(at_, close, block); end != 0) {
          push(block ? TokenType::kBlockEnd : TokenType::kVariableEnd, {});
          advance(end);
          return {};
        }
      }
      VN_TRY(token(open_brackets));
    }
  }

  Status token(std::vector<char>& open_brackets) {
    const char first = source_[at_];
    if (const std::size_t end = name_end(source_, at_); end > at_) {
      push(TokenType::kName, source_.substr(at_, end - at_));
      advance(end);
      return {};
    }
    if (is_ascii_digit(first)) {
      const NumberToken number = scan_number(source_, at_);
      push(number.is_float ? TokenType::kFloat : TokenType::kInteger, number.text);
      advance(number.end);
      return {};
    }
    if (first == '"' || first == '\'') {
      VN_ASSIGN(const StringToken string, scan_string(source_, at_, line_));
      push(TokenType::kString, string.text);
      advance(string.end);
      return {};
    }
    return operator_token(open_brackets);
  }

  Status operator_token(std::vector<char>& open_brackets) {
    static constexpr std::array<std::string_view, 26> kOperators = {"//", "**", "==", "!=", ">=", "<=", "+", "-", "/",
                                                                    "*",  "%",  "~",  "[",  "]",  "(",  ")", "{", "}",
                                                                    ">",  "<",  "=",  ".",  ":",  "|",  ",", ";"};
    const auto* const found =
        std::find_if(kOperators.begin(), kOperators.end(), [&](std::string_view op) { return looking_at(op, at_); });
    if (found == kOperators.end()) {
      const std::size_t size = decode_utf8(source_, at_).size;
      return syntax_error(line_, fmt::format("unexpected char '{}'", escape(source_.substr(at_, size))));
    }
    const char op = found->front();
    if (op == '(' || op == '[' || op == '{') {
      open_brackets.push_back(op == '(' ? ')' : (op == '[' ? ']' : '}'));
    } else if (op == ')' || op == ']' || op == '}') {
      if (open_brackets.empty()) return syntax_error(line_, fmt::format("unexpected '{}'", op));
      if (open_brackets.back() != op) {
        return syntax_error(line_, fmt::format("unexpected '{}', expected '{}'", op, open_brackets.back()));
      }
      open_brackets.pop_back();
    }
    push(TokenType::kOperator, *found);
    advance(at_ + found->size());
    return {};
  }

  std::string_view source_;
  std::size_t at_ = 0;
  std::uint32_t line_ = 1;
  bool line_starting_ = true;
  std::vector<Token> tokens_;
};

}  // namespace

std::string describe(const Token& token) {
  switch (token.type) {
    case TokenType::kText: return "template data";
    case TokenType::kVariableBegin: return "begin of print statement";
    case TokenType::kVariableEnd: return "end of print statement";
    case TokenType::kBlockBegin: return "begin of statement block";
    case TokenType::kBlockEnd: return "end of statement block";
    case TokenType::kEnd: return "end of template";
    default: return escape(token.text);
  }
}

tl::unexpected<Error> syntax_error(std::uint32_t line, std::string_view message) {
  return fail(ErrorCode::kCorrupt, "template line {}: {}", line, message);
}

Result<std::vector<Token>> tokenize(std::string_view source) { return Lexer(normalise(source)).run(); }

}  // namespace vernier::jinja
