#include "base/json_reader.h"

#include "base/utf8.h"

namespace vernier {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

}  // namespace

tl::unexpected<Error> JsonReader::unexpected(std::string_view expected) const {
  if (at_ >= text_.size()) {
    return fail(ErrorCode::kCorrupt, "invalid JSON at byte {}: expected {}, found the end", at_, expected);
  }
  return fail(ErrorCode::kCorrupt, "invalid JSON at byte {}: expected {}, found '{}'", at_, expected,
              escape(text_.substr(at_, decode_utf8(text_, at_).size)));
}

void JsonReader::skip_space() {
  while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\r' || text_[at_] == '\t')) {
    ++at_;
  }
}

Status JsonReader::enter(char open, std::string_view what) {
  skip_space();
  if (at_ >= text_.size() || text_[at_] != open) return unexpected(what);
  if (depth_ == kMaxDepth) {
    return fail(ErrorCode::kCorrupt, "invalid JSON at byte {}: nesting deeper than {} levels", at_, kMaxDepth);
  }
  had_element_ &= ~(1ULL << depth_);
  ++depth_;
  ++at_;
  return {};
}

Result<bool> JsonReader::next(char close, std::string_view what) {
  const std::uint64_t level = 1ULL << (depth_ - 1);
  skip_space();
  if (at_ < text_.size() && text_[at_] == close) {
    ++at_;
    --depth_;
    return false;
  }
  if ((had_element_ & level) != 0) {
    if (at_ >= text_.size() || text_[at_] != ',') return unexpected(fmt::format("',' or {}", what));
    ++at_;
    skip_space();
  }
  had_element_ |= level;
  return true;
}

Result<bool> JsonReader::next_member(std::string& key) {
  VN_ASSIGN(const bool more, next('}', "'}'"));
  if (!more) return false;
  VN_TRY(read_string(key));
  skip_space();
  if (at_ >= text_.size() || text_[at_] != ':') return unexpected("':'");
  ++at_;
  return true;
}

Result<unsigned> JsonReader::read_hex4() {
  unsigned value = 0;
  for (int i = 0; i < 4; ++i, ++at_) {
    const char c = at_ < text_.size() ? text_[at_] : '\0';
    if (is_digit(c)) {
      value = value * 16 + static_cast<unsigned>(c - '0');
    } else if (c >= 'a' && c <= 'f') {
      value = value * 16 + static_cast<unsigned>(c - 'a' + 10);
    } else if (c >= 'A' && c <= 'F') {
      value = value * 16 + static_cast<unsigned>(c - 'A' + 10);
    } else {
      return unexpected("four hexadecimal digits");
    }
  }
  return value;
}

/// Reads what follows a backslash.
Status JsonReader::read_escape(std::string& out) {
  static constexpr std::string_view kLetters = "\"\\/bfnrt";
  static constexpr std::string_view kValues = "\"\\/\b\f\n\r\t";
  const char letter = at_ < text_.size() ? text_[at_] : '\0';
  if (const auto which = kLetters.find(letter); which != std::string_view::npos) {
    out.push_back(kValues[which]);
    ++at_;
    return {};
  }
  if (letter != 'u') return unexpected("an escape");
  ++at_;
  VN_ASSIGN(char32_t code_point, read_hex4());
  if (code_point >= 0xD800 && code_point <= 0xDBFF && text_.substr(at_, 2) == "\\u") {
    at_ += 2;
    VN_ASSIGN(const char32_t low, read_hex4());
    if (low < 0xDC00 || low > 0xDFFF) return unexpected("the second half of a surrogate pair before here");
    code_point = 0x10000 + ((code_point - 0xD800) << 10U) + (low - 0xDC00);
  } else if (code_point >= 0xD800 && code_point <= 0xDFFF) {
    return unexpected("no lone surrogate before here");
  }
  append_utf8(out, code_point);
  return {};
}

Status JsonReader::read_string(std::string& out) {
  skip_space();
  if (at_ >= text_.size() || text_[at_] != '"') return unexpected("a string");
  ++at_;
  out.clear();
  const auto is_plain = [](char c) { return c >= 0x20 && c < 0x7F && c != '"' && c != '\\'; };
  while (at_ < text_.size()) {
    const std::size_t begin = at_;
    while (at_ < text_.size() && is_plain(text_[at_])) ++at_;
    out.append(text_.substr(begin, at_ - begin));
    if (at_ == text_.size()) break;
    if (text_[at_] == '"') {
      ++at_;
      return {};
    }
    if (text_[at_] == '\\') {
      ++at_;
      VN_TRY(read_escape(out));
      continue;
    }
    const Utf8Char ch = decode_utf8(text_, at_);
    if (!ch.valid) return unexpected("well-formed UTF-8");
    if (ch.code_point < 0x20) return unexpected("no control character in a string");
    out.append(text_.substr(at_, ch.size));
    at_ += ch.size;
  }
  return unexpected("the end of a string");
}

Result<std::uint64_t> JsonReader::read_unsigned() {
  skip_space();
  const std::size_t begin = at_;
  std::uint64_t value = 0;
  for (; at_ < text_.size() && is_digit(text_[at_]); ++at_) {
    if (__builtin_mul_overflow(value, 10U, &value) ||
        __builtin_add_overflow(value, static_cast<unsigned>(text_[at_] - '0'), &value)) {
      return fail(ErrorCode::kCorrupt, "invalid JSON at byte {}: the integer overflows 64 bits", begin);
    }
  }
  const bool leading_zero = at_ - begin > 1 && text_[begin] == '0';
  const char next = at_ < text_.size() ? text_[at_] : '\0';
  if (at_ == begin || leading_zero || next == '.' || next == 'e' || next == 'E') {
    at_ = begin;
    return unexpected("a non-negative integer without fraction or exponent");
  }
  return value;
}

Status JsonReader::skip_number() {
  if (text_[at_] == '-') ++at_;
  const auto digits = [this] {
    const std::size_t begin = at_;
    while (at_ < text_.size() && is_digit(text_[at_])) ++at_;
    return at_ - begin;
  };
  const bool zero = at_ < text_.size() && text_[at_] == '0';
  const std::size_t whole = digits();
  if (whole == 0 || (zero && whole > 1)) return unexpected("a number");
  if (at_ < text_.size() && text_[at_] == '.') {
    ++at_;
    if (digits() == 0) return unexpected("a digit");
  }
  if (at_ < text_.size() && (text_[at_] == 'e' || text_[at_] == 'E')) {
    ++at_;
    if (at_ < text_.size() && (text_[at_] == '+' || text_[at_] == '-')) ++at_;
    if (digits() == 0) return unexpected("a digit");
  }
  return {};
}

Status JsonReader::skip_scalar() {
  if (at_ >= text_.size()) return unexpected("a value");
  if (text_[at_] == '"') {
    std::string ignored;
    return read_string(ignored);
  }
  for (const std::string_view word : {"true", "false", "null"}) {
    if (text_.substr(at_, word.size()) == word) {
      at_ += word.size();
      return {};
    }
  }
  if (text_[at_] == '-' || is_digit(text_[at_])) return skip_number();
  return unexpected("a value");
}

Status JsonReader::skip_value() {
  const std::size_t outside = depth_;
  std::uint64_t objects = 0;  // bit d: the container at depth d + 1 is an object
  std::string ignored;
  do {
    skip_space();
    const char c = at_ < text_.size() ? text_[at_] : '\0';
    if (c == '{' || c == '[') {
      VN_TRY(enter(c, "a value"));
      const std::uint64_t bit = 1ULL << (depth_ - 1);
      objects = c == '{' ? objects | bit : objects & ~bit;
    } else {
      VN_TRY(skip_scalar());
    }
    // Leave all containers that end here; stop at the next element of one that doesn't.
    while (depth_ > outside) {
      const bool in_object = (objects >> (depth_ - 1) & 1U) != 0;
      VN_ASSIGN(const bool more, in_object ? next_member(ignored) : next_element());
      if (more) break;
    }
  } while (depth_ > outside);
  return {};
}

Status JsonReader::finish() {
  skip_space();
  if (at_ < text_.size()) return unexpected("nothing more");
  return {};
}

}  // namespace vernier
