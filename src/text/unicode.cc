// Look-ups in the generated tables, and the normalisation algorithm of Unicode 16 section 3.11.
#include "text/unicode.h"

#include <algorithm>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "base/utf8.h"
#include "text/unicode_tables.h"

namespace vernier::text_internal {
namespace {

// Hangul syllables are composed and decomposed by arithmetic (Unicode 16, section 3.12).
constexpr char32_t kSyllableBase = 0xAC00;
constexpr char32_t kLeadBase = 0x1100;
constexpr char32_t kVowelBase = 0x1161;
constexpr char32_t kTrailBase = 0x11A7;
constexpr char32_t kLeadCount = 19;
constexpr char32_t kVowelCount = 21;
constexpr char32_t kTrailCount = 28;
constexpr char32_t kSyllableCount = kLeadCount * kVowelCount * kTrailCount;

// Below these, every character is a starter that normalisation leaves alone.
constexpr char32_t kFirstChangedByNfc = 0x300;
constexpr char32_t kFirstChangedByNfkc = 0xA0;

template <class Row>
const Row& row_of_range(std::span<const Row> rows, char32_t c) {
  // Rows begin at 0, so the row before the first one beyond c exists.
  return *(std::upper_bound(rows.begin(), rows.end(), c, [](char32_t a, const Row& b) { return a < b.first; }) - 1);
}

template <class Row>
const Row* row_of_code_point(std::span<const Row> rows, char32_t c) {
  const auto at =
      std::lower_bound(rows.begin(), rows.end(), c, [](const Row& a, char32_t b) { return a.code_point < b; });
  return at != rows.end() && at->code_point == c ? &*at : nullptr;
}

std::uint8_t combining_class(char32_t c) {
  return c < kFirstChangedByNfc ? 0 : row_of_range(kUnicodeTables.combining, c).combining_class;
}

void append_hangul(std::u32string& out, char32_t syllable) {
  const char32_t index = syllable - kSyllableBase;
  out.push_back(kLeadBase + index / (kVowelCount * kTrailCount));
  out.push_back(kVowelBase + index % (kVowelCount * kTrailCount) / kTrailCount);
  if (index % kTrailCount != 0) out.push_back(kTrailBase + index % kTrailCount);
}

void append_decomposition(std::u32string& out, char32_t c, bool compatible) {
  if (c < kFirstChangedByNfkc) {
    out += c;
    return;
  }
  if (c - kSyllableBase < kSyllableCount) return append_hangul(out, c);
  const Decomposition* row = compatible ? row_of_code_point(kUnicodeTables.compatible, c) : nullptr;
  if (row == nullptr) row = row_of_code_point(kUnicodeTables.canonical, c);
  if (row == nullptr) {
    out += c;
    return;
  }
  for (const char32_t part : kUnicodeTables.decomposed.subspan(row->offset, row->length)) out += part;
}

/// The primary composite of two characters, or 0.
char32_t compose(char32_t first, char32_t second) {
  if (first - kLeadBase < kLeadCount && second - kVowelBase < kVowelCount) {
    return kSyllableBase + ((first - kLeadBase) * kVowelCount + (second - kVowelBase)) * kTrailCount;
  }
  if (first - kSyllableBase < kSyllableCount && (first - kSyllableBase) % kTrailCount == 0 && second > kTrailBase &&
      second < kTrailBase + kTrailCount) {
    return first + (second - kTrailBase);
  }
  const auto rows = kUnicodeTables.compositions;
  const auto at = std::lower_bound(
      rows.begin(), rows.end(), std::pair(first, second),
      [](const auto& a, const auto& b) { return a.first != b.first ? a.first < b.first : a.second < b.second; });
  return at != rows.end() && at->first == first && at->second == second ? at->composed : 0;
}

/// Sorts each run of combining marks by class, stably, and fills in the classes.
void order_canonically(std::u32string& text, std::vector<std::uint8_t>& classes) {
  classes.resize(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) classes[i] = combining_class(text[i]);
  std::vector<std::pair<std::uint8_t, char32_t>> run;
  for (std::size_t begin = 0; begin < text.size();) {
    if (classes[begin] == 0) {
      ++begin;
      continue;
    }
    std::size_t end = begin;
    run.clear();
    for (; end < text.size() && classes[end] != 0; ++end) run.emplace_back(classes[end], text[end]);
    std::stable_sort(run.begin(), run.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    for (std::size_t i = begin; i < end; ++i) std::tie(classes[i], text[i]) = run[i - begin];
    begin = end;
  }
}

/// Composes in place: each character with the last starter, unless something of the same or a higher class is between.
void compose_all(std::u32string& text, const std::vector<std::uint8_t>& classes) {
  std::size_t out = 0;
  std::size_t starter = std::u32string::npos;
  std::uint8_t last_class = 0;  // of the last character kept behind the starter, 0 when none is
  for (std::size_t i = 0; i < text.size(); ++i) {
    const std::uint8_t cls = classes[i];
    const bool adjacent = starter != std::u32string::npos && starter + 1 == out;
    if (starter != std::u32string::npos && (adjacent || (last_class != 0 && last_class < cls))) {
      if (const char32_t composed = compose(text[starter], text[i]); composed != 0) {
        text[starter] = composed;
        continue;
      }
    }
    if (cls == 0) starter = out;
    last_class = cls;
    text[out++] = text[i];
  }
  text.resize(out);
}

std::u32string normalize(std::u32string_view text, bool compatible) {
  const char32_t first_changed = compatible ? kFirstChangedByNfkc : kFirstChangedByNfc;
  if (std::ranges::all_of(text, [&](char32_t c) { return c < first_changed; })) return std::u32string(text);
  std::u32string out;
  out.reserve(text.size());
  for (const char32_t c : text) append_decomposition(out, c, compatible);
  std::vector<std::uint8_t> classes;
  order_canonically(out, classes);
  compose_all(out, classes);
  return out;
}

bool in_categories(char32_t c, GeneralCategory first, GeneralCategory last) {
  const GeneralCategory category = general_category(c);
  return category >= first && category <= last;
}

}  // namespace

GeneralCategory general_category(char32_t c) {
  return c > 0x10FFFF ? GeneralCategory::kCn
                      : static_cast<GeneralCategory>(row_of_range(kUnicodeTables.categories, c).category);
}

bool is_white_space(char32_t c) {
  if (c < 0x80) return c == ' ' || (c >= 0x09 && c <= 0x0D);
  return c == 0x85 || in_categories(c, GeneralCategory::kZs, GeneralCategory::kZp);
}

bool is_numeric(char32_t c) {
  if (c < 0x80) return c >= '0' && c <= '9';
  return in_categories(c, GeneralCategory::kNd, GeneralCategory::kNo);
}

bool is_punctuation(char32_t c) {
  if (c < 0x80)
    return (c >= '!' && c <= '/') || (c >= ':' && c <= '@') || (c >= '[' && c <= '`') || (c >= '{' && c <= '~');
  return in_categories(c, GeneralCategory::kPc, GeneralCategory::kPo);
}

bool is_word(char32_t c) {
  // Letters, marks, Nd and Nl are neighbours in the enumeration; the rest of Alphabetic are these enclosed letters.
  if (in_categories(c, GeneralCategory::kLu, GeneralCategory::kNl)) return true;
  if (general_category(c) == GeneralCategory::kPc || c == 0x200C || c == 0x200D) return true;
  return (c >= 0x24B6 && c <= 0x24E9) || (c >= 0x1F130 && c <= 0x1F149) || (c >= 0x1F150 && c <= 0x1F169) ||
         (c >= 0x1F170 && c <= 0x1F189);
}

std::u32string normalize_nfc(std::u32string_view text) { return normalize(text, false); }
std::u32string normalize_nfkc(std::u32string_view text) { return normalize(text, true); }

std::u32string lower_case(std::u32string_view text) {
  std::u32string out;
  out.reserve(text.size());
  for (const char32_t c : text) {
    const LowerCase* row = row_of_code_point(kUnicodeTables.lower_case, c);
    out += row == nullptr ? c : static_cast<char32_t>(row->lower);
    if (row != nullptr && row->second != 0) out += static_cast<char32_t>(row->second);
  }
  return out;
}

std::u32string decode_text(std::string_view utf8) {
  std::u32string out;
  out.reserve(utf8.size());
  for (std::size_t at = 0; at < utf8.size();) {
    const Utf8Char c = decode_utf8(utf8, at);
    out += c.code_point;
    at += c.size;
  }
  return out;
}

std::string encode_text(std::u32string_view text) {
  std::string out;
  out.reserve(text.size());
  for (const char32_t c : text) append_utf8(out, c);
  return out;
}

}  // namespace vernier::text_internal
