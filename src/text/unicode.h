// Properties, normalisation and lower case of Unicode 16 characters, and conversion to and from UTF-8 in bulk.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace vernier::text_internal {

/// General categories, in the order of the generated table.
enum class GeneralCategory : std::uint8_t {
  kLu,
  kLl,
  kLt,
  kLm,
  kLo,
  kMn,
  kMc,
  kMe,
  kNd,
  kNl,
  kNo,
  kPc,
  kPd,
  kPs,
  kPe,
  kPi,
  kPf,
  kPo,
  kSm,
  kSc,
  kSk,
  kSo,
  kZs,
  kZl,
  kZp,
  kCc,
  kCf,
  kCs,
  kCo,
  kCn,
};
inline constexpr int kNumCategories = 30;

[[nodiscard]] GeneralCategory general_category(char32_t c);
/// The White_Space property (not U+001C..U+001F, U+180E, U+200B).
[[nodiscard]] bool is_white_space(char32_t c);
/// Nd, Nl or No.
[[nodiscard]] bool is_numeric(char32_t c);
/// ASCII punctuation, or any of the P categories.
[[nodiscard]] bool is_punctuation(char32_t c);
/// A word character in the sense of UTS 18: alphabetic, mark, decimal digit, connector or join control.
[[nodiscard]] bool is_word(char32_t c);

/// Normalisation forms C and KC. Linear in the text, apart from sorting each run of combining marks (n log n).
[[nodiscard]] std::u32string normalize_nfc(std::u32string_view text);
[[nodiscard]] std::u32string normalize_nfkc(std::u32string_view text);
/// Each character's own lower case, without regard to its neighbours (no final sigma).
[[nodiscard]] std::u32string lower_case(std::u32string_view text);

/// Code points of UTF-8; ill-formed subparts become U+FFFD.
[[nodiscard]] std::u32string decode_text(std::string_view utf8);
[[nodiscard]] std::string encode_text(std::u32string_view text);

}  // namespace vernier::text_internal
