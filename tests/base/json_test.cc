#include "base/json.h"

#include <gtest/gtest.h>

namespace vernier {
namespace {

// Written and read again, a number keeps its value and its kind: "-0" would come back as the integer 0.
TEST(Json, FloatingPointNumbersSurviveWriting) {
  for (const char* text : {"-0.0", "0.0", "1.0", "-3.0", "0.1", "1e+300", "-1e-07", "123456789.0"}) {
    const auto value = parse_json(text);
    ASSERT_TRUE(value) << text;
    EXPECT_TRUE(value->is_double()) << text;
    EXPECT_EQ(to_json_text(*value), text);
  }
}

TEST(Json, KeepsOrderAndKinds) {
  const auto parsed = parse_json(R"({"b":1,"a":[1.5,true,null,"x"],"c":18446744073709551615})");
  ASSERT_TRUE(parsed) << parsed.error().message;
  EXPECT_EQ(to_json_text(*parsed), R"({"b":1,"a":[1.5,true,null,"x"],"c":18446744073709551615})");
  EXPECT_TRUE(parsed->find("b")->is_integer());
  EXPECT_TRUE(parsed->find("c")->is_big_unsigned());
  EXPECT_EQ(parsed->find("missing"), nullptr);
}

TEST(Json, RefusesWhatIsNotStrict) {
  for (const char* text : {"", "{", "{\"a\":1,}", "[1 2]", "01", "1e400", "\"\\ud800\"", "{\"a\":1} x",
                           "\xEF\xBB\xBF{}", "\"\xFF\"", "nan", "{\"a\":1,\"a\":2}", "{\"a\":1,\"\\u0061\":2}"}) {
    EXPECT_FALSE(parse_json(text)) << text;
  }
}

TEST(Json, DuplicateKeyIsNamed) {
  const auto parsed = parse_json(R"({"a":1,"\u0061":2})");
  ASSERT_FALSE(parsed);
  EXPECT_NE(parsed.error().message.find("duplicate key 'a'"), std::string::npos) << parsed.error().message;
}

TEST(Json, DepthIsBoundedWithoutRecursion) {
  const auto parsed = parse_json(std::string(1'000'000, '['));
  ASSERT_FALSE(parsed);
  EXPECT_NE(parsed.error().message.find("64 levels"), std::string::npos) << parsed.error().message;
}

TEST(Json, LargeObjectsAreIndexed) {
  JsonObject object;
  for (int i = 0; i < 1000; ++i) object.set(std::to_string(i), Json(i));
  for (int i = 0; i < 1000; ++i) ASSERT_EQ(object.find(std::to_string(i))->as_int64(), i);
  object.set("17", Json("changed"));
  EXPECT_EQ(object.size(), 1000U);
  EXPECT_EQ(object.find("17")->as_string(), "changed");
}

TEST(Json, WritesControlCharactersAndIllFormedText) {
  std::string out;
  append_json_string(out, std::string_view("a\"\\\n\x01\xFF\xE4\xB8", 8));
  EXPECT_EQ(out, "\"a\\\"\\\\\\n\\u0001\xEF\xBF\xBD\xEF\xBF\xBD\"");
}

}  // namespace
}  // namespace vernier
