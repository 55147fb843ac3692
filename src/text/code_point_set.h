// A set of code points: what a character class of a regular expression means.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace vernier::text_internal {

/// Disjoint ascending ranges with a bitmap for ASCII. contains() is O(log ranges).
class CodePointSet {
 public:
  struct Range {
    char32_t first;
    char32_t last;  // inclusive
  };
  static constexpr char32_t kMaxCodePoint = 0x10FFFF;

  CodePointSet() = default;
  /// All code points of the general category of one or two letters ("L", "Lu"), or nothing for an unknown name.
  static std::optional<CodePointSet> of_category(std::string_view name);
  static CodePointSet white_space();
  /// What \w matches in Oniguruma: is_word() without the join controls, and with the digits and fractions of Latin-1.
  static CodePointSet word();

  void add(char32_t first, char32_t last);
  void add(char32_t c) { add(c, c); }
  void add(const CodePointSet& other);
  void invert();
  void intersect(const CodePointSet& other);

  [[nodiscard]] bool contains(char32_t c) const {
    return c < 128 ? ((ascii_[c / 64] >> (c % 64)) & 1U) != 0 : contains_above_ascii(c);
  }
  [[nodiscard]] const std::vector<Range>& ranges() const { return ranges_; }

 private:
  [[nodiscard]] bool contains_above_ascii(char32_t c) const;
  void normalize(std::vector<Range> ranges);

  std::vector<Range> ranges_;
  std::array<std::uint64_t, 2> ascii_{};
};

}  // namespace vernier::text_internal
