#include "text/unicode.h"

#include <gtest/gtest.h>

#include <string_view>

#include "text/code_point_set.h"

namespace vernier::text_internal {
namespace {

using namespace std::string_view_literals;

TEST(Unicode, CategoriesOfVersion16) {
  EXPECT_EQ(general_category(U'A'), GeneralCategory::kLu);
  EXPECT_EQ(general_category(U'ǅ'), GeneralCategory::kLt);
  EXPECT_EQ(general_category(U'中'), GeneralCategory::kLo);
  EXPECT_EQ(general_category(U'\u0301'), GeneralCategory::kMn);
  EXPECT_EQ(general_category(U'²'), GeneralCategory::kNo);
  EXPECT_EQ(general_category(U'\uE000'), GeneralCategory::kCo);
  EXPECT_EQ(general_category(0x10FFFF), GeneralCategory::kCn);
  EXPECT_EQ(general_category(0x110000), GeneralCategory::kCn);
  EXPECT_EQ(general_category(0x10D50), GeneralCategory::kLu);  // Garay, new in Unicode 16
}

TEST(Unicode, WhiteSpaceIsTheProperty) {
  for (const char32_t c : U"\t\n\v\f\r \u0085\u00A0\u1680\u2000\u200A\u2028\u2029\u202F\u205F\u3000"sv) {
    EXPECT_TRUE(is_white_space(c)) << std::hex << static_cast<unsigned>(c);
  }
  for (const char32_t c : {U'\x1C', U'\x1F', U'\u180E', U'\u200B', U'a', U'\uFEFF'}) EXPECT_FALSE(is_white_space(c));
}

TEST(Unicode, PunctuationAndWords) {
  for (const char32_t c : {U'!', U'$', U'+', U'`', U'_', U'«', U'—', U'。'}) EXPECT_TRUE(is_punctuation(c));
  for (const char32_t c : {U'a', U'€', U'±', U'×'}) EXPECT_FALSE(is_punctuation(c));
  for (const char32_t c : {U'a', U'é', U'5', U'_', U'Ⅳ', U'ⓐ', U'\u0301', U'\u200D'}) EXPECT_TRUE(is_word(c));
  for (const char32_t c : {U' ', U'-', U'²', U'€'}) EXPECT_FALSE(is_word(c));
}

TEST(Unicode, NormalizationFormC) {
  EXPECT_EQ(normalize_nfc(U"e\u0301"), U"é");
  EXPECT_EQ(normalize_nfc(U"\u1112\u1161\u11AB"), U"한");
  EXPECT_EQ(normalize_nfc(U"\u1112\u1161\u11A7"), U"하\u11A7");  // the trailing base is no trailing consonant
  EXPECT_EQ(normalize_nfc(U"\u212B\u2126"), U"ÅΩ");              // singletons
  EXPECT_EQ(normalize_nfc(U"\u0958"), U"\u0915\u093C");          // excluded from composition
  EXPECT_EQ(normalize_nfc(U"a\u0323\u0307"), U"ạ\u0307");
  EXPECT_EQ(normalize_nfc(U"a\u0307\u0323"), U"ạ\u0307");  // marks are ordered first
  EXPECT_EQ(normalize_nfc(U"a\u0301\u0301"), U"á\u0301");
  EXPECT_EQ(normalize_nfc(U"ﬁ"), U"ﬁ");
}

TEST(Unicode, NormalizationFormKC) {
  EXPECT_EQ(normalize_nfkc(U"ﬁ²Ａ…"), U"fi2A...");
  EXPECT_EQ(normalize_nfkc(U"\u00A0"), U" ");
  EXPECT_EQ(normalize_nfkc(U"ﷺ").size(), 18U);
  EXPECT_EQ(normalize_nfkc(U"ｶﾞ"), U"ガ");
}

TEST(Unicode, LowerCaseIsCharacterByCharacter) {
  EXPECT_EQ(lower_case(U"ÀΣΑΣ"), U"àσασ");
  EXPECT_EQ(lower_case(U"İ"), U"i\u0307");
  EXPECT_EQ(lower_case(U"ẞ"), U"ß");
}

TEST(CodePointSet, SetOperations) {
  CodePointSet set;
  set.add(U'a', U'f');
  set.add(U'd', U'k');
  set.add(U'l');
  ASSERT_EQ(set.ranges().size(), 1U);
  CodePointSet other;
  other.add(U'k', U'z');
  set.intersect(other);
  EXPECT_TRUE(set.contains(U'k') && set.contains(U'l'));
  EXPECT_FALSE(set.contains(U'j') || set.contains(U'm'));
  set.invert();
  EXPECT_TRUE(set.contains(0) && set.contains(0x10FFFF));
  EXPECT_FALSE(set.contains(U'k'));
}

TEST(CodePointSet, CategoriesAgreeWithTheSingleLookUp) {
  const CodePointSet letters = *CodePointSet::of_category("L");
  const CodePointSet word = CodePointSet::word();
  const CodePointSet space = CodePointSet::white_space();
  for (char32_t c = 0; c <= CodePointSet::kMaxCodePoint; ++c) {
    ASSERT_EQ(letters.contains(c), general_category(c) <= GeneralCategory::kLo) << std::hex << static_cast<unsigned>(c);
    const bool differs =
        c == 0x200C || c == 0x200D || u"²³¹¼½¾"sv.find(static_cast<char16_t>(c)) != std::u16string_view::npos;
    ASSERT_EQ(word.contains(c), is_word(c) != (c < 0x10000 && differs)) << std::hex << static_cast<unsigned>(c);
    ASSERT_EQ(space.contains(c), is_white_space(c)) << std::hex << static_cast<unsigned>(c);
  }
  EXPECT_FALSE(CodePointSet::of_category("Han"));
  EXPECT_FALSE(CodePointSet::of_category(""));
}

}  // namespace
}  // namespace vernier::text_internal
