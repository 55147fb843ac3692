#include "base/utf8.h"

#include <gtest/gtest.h>

#include "base/result.h"

namespace vernier {
namespace {

std::string fffd(int count) {
  std::string out;
  for (int i = 0; i < count; ++i) append_utf8(out, 0xFFFD);
  return out;
}

TEST(Utf8, MaximalSubparts) {
  EXPECT_EQ(replace_invalid_utf8("\xE4\xB8"
                                 "A"),
            fffd(1) + "A");
  EXPECT_EQ(replace_invalid_utf8("\xC0\xAF"), fffd(2));
  EXPECT_EQ(replace_invalid_utf8("\xED\xA0\x80"), fffd(3));
  EXPECT_EQ(replace_invalid_utf8("\xF0\x9F\x98"), fffd(1));
  EXPECT_EQ(replace_invalid_utf8("\xF5\x80"), fffd(2));
}

TEST(Utf8, EveryCodePointRoundTrips) {
  for (char32_t c = 0; c <= 0x10FFFF; ++c) {
    if (c >= 0xD800 && c <= 0xDFFF) continue;
    std::string text;
    append_utf8(text, c);
    const Utf8Char back = decode_utf8(text, 0);
    ASSERT_TRUE(back.valid && back.code_point == c && back.size == text.size()) << static_cast<unsigned>(c);
  }
}

TEST(Escape, ControlCharactersAndLength) {
  EXPECT_EQ(escape(std::string_view("a\x1b[31m\n\0", 8)), "a\\x1B[31m\\n\\x00");
  EXPECT_EQ(escape("\xFF'"), "\\xFF\\'");
  EXPECT_LE(escape(std::string(1000, 'x')).size(), 131U);
}

}  // namespace
}  // namespace vernier
