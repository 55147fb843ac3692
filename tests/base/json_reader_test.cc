#include "base/json_reader.h"

#include <gtest/gtest.h>

#include "base/json.h"

namespace vernier {
namespace {

TEST(JsonReader, WalksAKnownStructure) {
  JsonReader reader(R"( { "a" : [1, 22 ,18446744073709551615], "\u00e9\ud83d\ude00\n" : "x\"y" , "c":{} } )");
  std::string key;
  std::string value;
  ASSERT_TRUE(reader.enter_object());
  ASSERT_TRUE(*reader.next_member(key));
  EXPECT_EQ(key, "a");
  ASSERT_TRUE(reader.enter_array());
  for (const std::uint64_t expected : {1ULL, 22ULL, ~0ULL}) {
    ASSERT_TRUE(*reader.next_element());
    EXPECT_EQ(*reader.read_unsigned(), expected);
  }
  ASSERT_FALSE(*reader.next_element());
  ASSERT_TRUE(*reader.next_member(key));
  EXPECT_EQ(key, "\xC3\xA9\xF0\x9F\x98\x80\n");
  ASSERT_TRUE(reader.read_string(value));
  EXPECT_EQ(value, "x\"y");
  ASSERT_TRUE(*reader.next_member(key));
  ASSERT_TRUE(reader.skip_value());
  ASSERT_FALSE(*reader.next_member(key));
  EXPECT_TRUE(reader.finish());
}

TEST(JsonReader, UnsignedIsStrict) {
  for (const char* text :
       {"-0", "-1", "1.5", "1e3", "01", "18446744073709551616", "1e400", "true", "\"1\"", "", "+1"}) {
    EXPECT_FALSE(JsonReader(text).read_unsigned()) << text;
  }
  const auto overflow = JsonReader("   99999999999999999999").read_unsigned();
  EXPECT_NE(overflow.error().message.find("at byte 3"), std::string::npos) << overflow.error().message;
}

TEST(JsonReader, StringsAreStrict) {
  std::string out;
  for (const char* text : {"\"a", "\"\\x\"", "\"\\u12\"", "\"\\ud800\"", "\"\\ud800\\u0041\"", "\"\\udc00\"",
                           "\"a\nb\"", "\"\xFF\"", "\"\xED\xA0\x80\"", "a", "", "\"\\"}) {
    EXPECT_FALSE(JsonReader(text).read_string(out)) << text;
  }
}

// skip_value() must accept and refuse what the other parser does.
TEST(JsonReader, SkipAgreesWithTheTreeParser) {
  for (const char* text : {"null",
                           "true",
                           "false",
                           "0",
                           "-0",
                           "-1.5e+10",
                           "1E5",
                           "[]",
                           "{}",
                           "[1,[2,{\"a\":[]}],\"x\"]",
                           "{\"a\":{\"b\":[1,2,{}]},\"c\":null}",
                           " [ 1 , 2 ] ",
                           "[1,]",
                           "[,1]",
                           "{\"a\"}",
                           "{\"a\":}",
                           "{\"a\":1,}",
                           "[1 2]",
                           "01",
                           "1.",
                           ".5",
                           "-",
                           "tru",
                           "nullx",
                           "[",
                           "{",
                           "]",
                           "[}",
                           "{]",
                           "{\"a\":1]",
                           "",
                           " ",
                           "1 2",
                           "\"\\u0000\""}) {
    JsonReader reader(text);
    const bool accepted = reader.skip_value() && reader.finish();
    EXPECT_EQ(accepted, parse_json(text).has_value()) << text;
  }
}

TEST(JsonReader, DepthIsBoundedWithoutRecursion) {
  const std::string deep(1'000'000, '[');
  JsonReader reader(deep);
  const Status status = reader.skip_value();
  ASSERT_FALSE(status);
  EXPECT_NE(status.error().message.find("64 levels"), std::string::npos) << status.error().message;
  const std::string fits = std::string(64, '[') + std::string(64, ']');
  EXPECT_TRUE(JsonReader(fits).skip_value());
}

}  // namespace
}  // namespace vernier
