#include "chat/jinja/text_ops.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>

#include "base/utf8.h"

namespace vernier::jinja {
namespace {

/// Every `stride`-th code point of first..last.
struct Range {
  char32_t first, last;
  std::uint32_t stride;
};
struct CaseRun {
  char32_t first, last;
  std::uint32_t stride;
  std::int32_t delta;
};
struct CaseExpansion {
  char32_t code_point;
  char32_t to[3];  // 0 where shorter
};

#include "chat/jinja/unicode_tables.inc"

/// The entry of a sorted table of runs that holds the code point, or null.
template <class Run>
const Run* find_run(std::span<const Run> table, char32_t code_point) {
  auto found = std::upper_bound(table.begin(), table.end(), code_point,
                                [](char32_t value, const Run& run) { return value < run.first; });
  if (found == table.begin()) return nullptr;
  --found;
  return code_point <= found->last && (code_point - found->first) % found->stride == 0 ? &*found : nullptr;
}

template <std::size_t size>
bool holds(const Range (&table)[size], char32_t code_point) {
  return find_run<Range>(table, code_point) != nullptr;
}

/// Appends the mapping of one character if the tables have one.
bool append_mapped(std::string& out, char32_t code_point, std::span<const CaseRun> runs,
                   std::span<const CaseExpansion> expansions) {
  if (const CaseRun* run = find_run(runs, code_point)) {
    append_utf8(out, static_cast<char32_t>(static_cast<std::int32_t>(code_point) + run->delta));
    return true;
  }
  const auto found =
      std::lower_bound(expansions.begin(), expansions.end(), code_point,
                       [](const CaseExpansion& entry, char32_t value) { return entry.code_point < value; });
  if (found == expansions.end() || found->code_point != code_point) return false;
  for (const char32_t to : found->to) {
    if (to != 0) append_utf8(out, to);
  }
  return true;
}

void append_title(std::string& out, char32_t code_point) {
  if (!append_mapped(out, code_point, kTitleRuns, kTitleExpansions)) append_upper(out, code_point);
}

template <class Function>
void for_each_code_point(std::string_view text, Function function) {
  for (std::size_t at = 0; at < text.size();) {
    const Utf8Char ch = decode_utf8(text, at);
    function(ch.code_point);
    at += ch.size;
  }
}

}  // namespace

std::size_t count_code_points(std::string_view text) {
  return static_cast<std::size_t>(std::count_if(
      text.begin(), text.end(), [](char ch) { return (static_cast<unsigned char>(ch) & 0xC0U) != 0x80U; }));
}

std::size_t byte_offset(std::string_view text, std::size_t index) {
  std::size_t at = 0;
  for (; at < text.size() && index > 0; --index) at += decode_utf8(text, at).size;
  return at;
}

std::size_t find_text(std::string_view text, std::string_view needle, std::size_t from) {
  if (from > text.size()) return std::string_view::npos;
  if (needle.empty()) return from;
  const void* found = memmem(text.data() + from, text.size() - from, needle.data(), needle.size());
  return found == nullptr ? std::string_view::npos
                          : static_cast<std::size_t>(static_cast<const char*>(found) - text.data());
}

std::vector<char32_t> to_code_points(std::string_view text) {
  std::vector<char32_t> result;
  result.reserve(text.size());
  for_each_code_point(text, [&](char32_t code_point) { result.push_back(code_point); });
  return result;
}

bool is_space(char32_t c) {
  return (c >= 9 && c <= 13) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

bool is_printable(char32_t c) { return c >= 0x20 && c < 0x7F ? true : !holds(kNotPrintable, c); }
bool is_alphabetic(char32_t c) { return holds(kAlphabetic, c); }
bool is_decimal(char32_t c) { return holds(kDecimal, c); }
bool is_digit(char32_t c) { return holds(kDigit, c); }
bool is_cased_upper(char32_t c) { return holds(kUppercase, c); }
bool is_cased_lower(char32_t c) { return holds(kLowercase, c); }

std::string_view strip(std::string_view text, const std::string_view* chars, StripEnds ends) {
  const std::vector<char32_t> set = chars != nullptr ? to_code_points(*chars) : std::vector<char32_t>();
  const auto drops = [&](char32_t c) {
    return chars == nullptr ? is_space(c) : std::find(set.begin(), set.end(), c) != set.end();
  };
  while (ends.left && !text.empty()) {
    const Utf8Char ch = decode_utf8(text, 0);
    if (!drops(ch.code_point)) break;
    text.remove_prefix(ch.size);
  }
  while (ends.right && !text.empty()) {
    std::size_t start = text.size() - 1;
    while (start > 0 && (static_cast<unsigned char>(text[start]) & 0xC0U) == 0x80U) --start;
    if (!drops(decode_utf8(text, start).code_point)) break;
    text = text.substr(0, start);
  }
  return text;
}

void append_upper(std::string& out, char32_t c) {
  if (c < 0x80) {
    out.push_back(static_cast<char>(c >= 'a' && c <= 'z' ? c - 32 : c));
  } else if (!append_mapped(out, c, kUpperRuns, kUpperExpansions)) {
    append_utf8(out, c);
  }
}

void append_lower(std::string& out, char32_t c) {
  if (c < 0x80) {
    out.push_back(static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c));
  } else if (!append_mapped(out, c, kLowerRuns, kLowerExpansions)) {
    append_utf8(out, c);
  }
}

std::string to_upper(std::string_view text) {
  std::string out;
  for_each_code_point(text, [&](char32_t c) { append_upper(out, c); });
  return out;
}

std::string to_lower(std::string_view text) {
  constexpr char32_t kSigma = 0x3A3;
  std::string out;
  bool inside_word = false;
  std::size_t at = 0;
  for_each_code_point(text, [&](char32_t c) {
    at += decode_utf8(text, at).size;
    const bool cased = is_cased_upper(c) || is_cased_lower(c);
    if (c == kSigma && inside_word) {  // the one letter whose lower case depends on where it stands
      const char32_t next = at < text.size() ? decode_utf8(text, at).code_point : U' ';
      append_utf8(out, is_cased_upper(next) || is_cased_lower(next) ? 0x3C3 : 0x3C2);
    } else {
      append_lower(out, c);
    }
    inside_word = cased;
  });
  return out;
}

std::string to_title(std::string_view text) {
  std::string out;
  bool inside = false;
  for_each_code_point(text, [&](char32_t c) {
    inside ? append_lower(out, c) : append_title(out, c);
    inside = is_cased_upper(c) || is_cased_lower(c);
  });
  return out;
}

std::string to_capitalized(std::string_view text) {
  std::string out;
  bool first = true;
  for_each_code_point(text, [&](char32_t c) {
    first ? append_title(out, c) : append_lower(out, c);
    first = false;
  });
  return out;
}

std::string to_swapped_case(std::string_view text) {
  std::string out;
  for_each_code_point(text, [&](char32_t c) { is_cased_upper(c) ? append_lower(out, c) : append_upper(out, c); });
  return out;
}

void for_each_line(std::string_view text, bool keep_ends, const std::function<void(std::string_view)>& use) {
  std::size_t start = 0;
  for (std::size_t at = 0; at < text.size();) {
    const Utf8Char ch = decode_utf8(text, at);
    const char32_t c = ch.code_point;
    std::size_t next = at + ch.size;
    const bool ends = (c >= 10 && c <= 13) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 || c == 0x2029;
    if (ends) {
      if (c == '\r' && next < text.size() && text[next] == '\n') ++next;
      use(text.substr(start, (keep_ends ? next : at) - start));
      start = next;
    }
    at = next;
  }
  if (start < text.size()) use(text.substr(start));
}

}  // namespace vernier::jinja
