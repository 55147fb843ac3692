#include "text/regex.h"

#include <gtest/gtest.h>

#include <chrono>
#include <string>

#include "text/unicode.h"

namespace vernier::text_internal {
namespace {

/// The matches of a pattern, joined with '|'; "(empty)" for an empty one; "error: ..." when it doesn't compile.
std::string matches(std::string_view pattern, std::string_view text) {
  const auto regex = Regex::compile(pattern);
  if (!regex) return "error: " + regex.error().message;
  RegexScratch scratch;
  const std::u32string characters = decode_text(text);
  const auto found = regex->find_all(characters, scratch);
  if (!found) return "error: " + found.error().message;
  std::string out;
  for (const Regex::Match& match : *found) {
    if (!out.empty()) out += '|';
    out += match.end == match.begin ? "(empty)" : encode_text(characters.substr(match.begin, match.end - match.begin));
  }
  return out;
}

TEST(Regex, FirstAlternativeWinsOverTheLongest) {
  EXPECT_EQ(matches("a|ab", "ab"), "a");
  EXPECT_EQ(matches("(?:a|ab)c", "abc"), "abc");
  EXPECT_EQ(matches("(a|b)+c|.", "abcab"), "abc|a|b");
}

TEST(Regex, Quantifiers) {
  EXPECT_EQ(matches("a?b", "abb"), "ab|b");
  EXPECT_EQ(matches("a{2}", "aaaaa"), "aa|aa");
  EXPECT_EQ(matches("a{2,3}", "aaaaaaa"), "aaa|aaa");
  EXPECT_EQ(matches("a{2,}", "a aa aaaa"), "aa|aaaa");
  EXPECT_EQ(matches("<.+?>", "<a><b>"), "<a>|<b>");
  EXPECT_EQ(matches("a{,2}b", "aaab"), "aab");
  EXPECT_EQ(matches("x{a}", "x{a}"), "x{a}");
  EXPECT_EQ(matches("a*", "baa"), "(empty)|aa");
}

TEST(Regex, PossessiveRepetitionsGiveNothingBack) {
  EXPECT_EQ(matches("a++a", "aaa"), "");
  EXPECT_EQ(matches("a?+a", "a aa"), "aa");
  EXPECT_EQ(matches("a*+b|a", "aab aa"), "aab|a|a");
  EXPECT_EQ(matches(R"([^\r\n\p{L}]?+\p{L}++)", "ab cd"), "ab| cd");
}

TEST(Regex, ClassesAndEscapes) {
  EXPECT_EQ(matches("[a-c]+", "abcd"), "abc");
  EXPECT_EQ(matches("[^a-c]+", "abcde"), "de");
  EXPECT_EQ(matches(R"([\]\[\\\-a]+)", R"(x[a]-\y)"), R"([a]-\)");
  EXPECT_EQ(matches("[a-]+", "-a-b"), "-a-");
  EXPECT_EQ(matches("[a-z&&[^aeiou]]+", "abcde"), "bcd");
  EXPECT_EQ(matches(R"(\d+)", "1٣²"), "1٣");
  EXPECT_EQ(matches(R"(\p{N}+)", "1٣²Ⅳ"), "1٣²Ⅳ");
  EXPECT_EQ(matches(R"(\p{Lu}\P{Lu}+)", "aBcdE"), "Bcd");
  EXPECT_EQ(matches(R"(\p{^L}+)", "ab12c"), "12");
  EXPECT_EQ(matches(R"([^\s\p{L}]+)", "a b!? c"), "!?");
  EXPECT_EQ(matches(R"(\x{4E00}|\x41|\u00e9)", "一Aé"), "一|A|é");
  EXPECT_EQ(matches(R"(\w+)", "né_1 x-y"), "né_1|x|y");
}

TEST(Regex, CaseInsensitiveGroupsFoldTwoCharactersBeyondAscii) {
  EXPECT_EQ(matches("(?i:'s|k)", "'S's'\u017F\u212AkK'T"), "'S|'s|'\u017F|\u212A|k|K");
  EXPECT_EQ(matches("(?i)ab|c", "aBC"), "aB|C");
  EXPECT_EQ(matches("(?i:a)b", "Ab AB"), "Ab");
}

TEST(Regex, AssertionsAndLookaheads) {
  EXPECT_EQ(matches(R"(\s+(?!\S)|\s+)", "a   b  "), "  | |  ");
  EXPECT_EQ(matches(R"(\d(?=(?:\d{3})+(?!\d)))", "1234567"), "1|4");
  EXPECT_EQ(matches(R"(a(?=b|c))", "abacad"), "a|a");
  EXPECT_EQ(matches(R"(a(?!b|c)d)", "abadac"), "ad");
  EXPECT_EQ(matches("^a|b$", "a\nab\nb"), "a|a|b|b");
  EXPECT_EQ(matches(R"(\Aa|b\z)", "a\nab\nb"), "a|b");
  EXPECT_EQ(matches(R"(\bcat\b)", "cat concat cat."), "cat|cat");
  EXPECT_EQ(matches(R"(x(?=(?:y(?=z))+)y)", "xyzxy"), "xy");
}

TEST(Regex, UnsupportedConstructsAreNamed) {
  EXPECT_EQ(matches("(?<=a)b", ""), "error: regular expression: group '(?<=' at character 1 isn't supported");
  EXPECT_NE(matches("(?>a)", "").find("isn't supported"), std::string::npos);
  EXPECT_NE(matches(R"((a)\1)", "").find(R"(escape '\1')"), std::string::npos);
  EXPECT_NE(matches(R"(\p{Han})", "").find("property 'Han'"), std::string::npos);
  EXPECT_NE(matches("[[:alpha:]]", "").find("POSIX"), std::string::npos);
  EXPECT_NE(matches("(?i:é)", "").find("case-insensitive"), std::string::npos);
  EXPECT_NE(matches("(?:a|b)++", "").find("possessive"), std::string::npos);
  EXPECT_NE(matches("(?:a*)*", "").find("may match the empty text"), std::string::npos);
  EXPECT_NE(matches("a**", "").find("quantifier of a quantifier"), std::string::npos);
}

TEST(Regex, MalformedPatternsAreErrors) {
  for (const char* pattern : {"(a", "a)", "[a", "[", "[^", "*a", "a|*", "\\", "\\p{L", "\\pL", "\\x{110000}", "\\x",
                              "[b-a]", "a{3,2}", "(?", "[a&&", "\\u12"}) {
    EXPECT_EQ(matches(pattern, "").substr(0, 6), "error:") << pattern;
  }
}

TEST(Regex, LimitsHoldCompilationBack) {
  EXPECT_NE(matches(std::string(5000, 'a'), "").find("more than"), std::string::npos);
  EXPECT_NE(matches("(?:(?:(?:a{1000}){1000}){1000}){1000}", "").find("more than"), std::string::npos);
  EXPECT_NE(matches("a{1001}", "").find("more than 1000"), std::string::npos);
  EXPECT_NE(matches(std::string(1000, '(') + std::string(1000, ')'), "").find("deeper"), std::string::npos);
  EXPECT_NE(matches(std::string(1000, '[') + std::string(1000, ']'), "").find("deeper"), std::string::npos);
}

// Patterns that take exponential or quadratic time in a plain backtracking engine.
TEST(Regex, PathologicalPatternsTakeLinearTime) {
  const std::string letters(std::size_t{1} << 17U, 'a');
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(matches("(?:a+)+$", letters + "b"), "");
  EXPECT_EQ(matches("(?:a|a)+b", letters), "");
  EXPECT_EQ(matches("(?:a|aa)+$", letters + "b"), "");
  EXPECT_EQ(matches("a*a*a*a*b", letters), "");
  EXPECT_EQ(matches("a++b|x", letters), "");
  EXPECT_EQ(matches("(?=a*b)a", letters), "");
  EXPECT_EQ(matches("(?=a*b)a(?!a+b)", letters + "b"), "a");
  EXPECT_EQ(matches(R"(\s*[\r\n]+|z)", std::string(letters.size(), ' ')), "");
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
  EXPECT_LT(taken.count(), 30);
}

}  // namespace
}  // namespace vernier::text_internal
