// Set operations on sorted ranges.
#include "text/code_point_set.h"

#include <algorithm>

#include "text/unicode.h"
#include "text/unicode_tables.h"

namespace vernier::text_internal {
namespace {

// In the order of GeneralCategory; a one-letter name stands for all that begin with it.
constexpr std::array<std::string_view, kNumCategories> kCategoryNames = {
    "Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd", "Nl", "No", "Pc", "Pd", "Ps", "Pe",
    "Pi", "Pf", "Po", "Sm", "Sc", "Sk", "So", "Zs", "Zl", "Zp", "Cc", "Cf", "Cs", "Co", "Cn"};

}  // namespace

std::optional<CodePointSet> CodePointSet::of_category(std::string_view name) {
  std::array<bool, kNumCategories> wanted{};
  bool known = false;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    wanted[i] = kCategoryNames[i] == name || (name.size() == 1 && kCategoryNames[i].starts_with(name));
    known = known || wanted[i];
  }
  if (!known) return std::nullopt;
  std::vector<Range> ranges;
  const auto rows = kUnicodeTables.categories;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const char32_t last = i + 1 < rows.size() ? rows[i + 1].first - 1 : kMaxCodePoint;
    if (wanted[rows[i].category]) ranges.push_back({rows[i].first, last});
  }
  CodePointSet set;
  set.normalize(std::move(ranges));
  return set;
}

CodePointSet CodePointSet::white_space() {
  CodePointSet set = *of_category("Z");
  set.add(0x09, 0x0D);
  set.add(0x85);
  return set;
}

CodePointSet CodePointSet::word() {
  std::vector<Range> ranges;
  const auto rows = kUnicodeTables.categories;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    // Alphabetic goes beyond whole categories only within So, whose ranges are looked at one by one.
    const char32_t last = i + 1 < rows.size() ? rows[i + 1].first - 1 : kMaxCodePoint;
    if (rows[i].category != static_cast<std::uint8_t>(GeneralCategory::kSo)) {
      if (is_word(rows[i].first)) ranges.push_back({rows[i].first, last});
      continue;
    }
    for (char32_t c = rows[i].first; c <= last; ++c) {
      if (is_word(c)) ranges.push_back({c, c});
    }
  }
  CodePointSet set;
  set.normalize(std::move(ranges));
  for (const char32_t c : U"\u00B2\u00B3\u00B9\u00BC\u00BD\u00BE") {
    if (c != 0) set.add(c);
  }
  return set;
}

void CodePointSet::add(char32_t first, char32_t last) {
  std::vector<Range> ranges = std::move(ranges_);
  ranges.push_back({first, last});
  normalize(std::move(ranges));
}

void CodePointSet::add(const CodePointSet& other) {
  std::vector<Range> ranges = std::move(ranges_);
  ranges.insert(ranges.end(), other.ranges_.begin(), other.ranges_.end());
  normalize(std::move(ranges));
}

void CodePointSet::invert() {
  std::vector<Range> ranges;
  char32_t next = 0;
  for (const Range& range : ranges_) {
    if (range.first > next) ranges.push_back({next, range.first - 1});
    next = range.last + 1;
  }
  if (next <= kMaxCodePoint) ranges.push_back({next, kMaxCodePoint});
  normalize(std::move(ranges));
}

void CodePointSet::intersect(const CodePointSet& other) {
  CodePointSet outside = other;
  outside.invert();
  invert();
  add(outside);
  invert();
}

bool CodePointSet::contains_above_ascii(char32_t c) const {
  const auto after = std::upper_bound(ranges_.begin(), ranges_.end(), c,
                                      [](char32_t value, const Range& range) { return value < range.first; });
  return after != ranges_.begin() && c <= (after - 1)->last;
}

void CodePointSet::normalize(std::vector<Range> ranges) {
  std::sort(ranges.begin(), ranges.end(), [](const Range& a, const Range& b) { return a.first < b.first; });
  ranges_.clear();
  for (const Range& range : ranges) {
    if (!ranges_.empty() && range.first <= ranges_.back().last + 1) {
      ranges_.back().last = std::max(ranges_.back().last, range.last);
    } else {
      ranges_.push_back(range);
    }
  }
  ascii_ = {};
  for (const Range& range : ranges_) {
    for (char32_t c = range.first; c <= range.last && c < 128; ++c) ascii_[c / 64] |= std::uint64_t{1} << (c % 64);
  }
}

}  // namespace vernier::text_internal
