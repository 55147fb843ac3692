// The keys of GGUF files: reading by type, and hostile ones.
#include "checkpoint/gguf_metadata.h"

#include <gtest/gtest.h>

#include <limits>

#include "checkpoint/gguf.h"
#include "support/expect_error.h"
#include "support/gguf_builder.h"

namespace vernier {
namespace {

using test::append_number;
using test::fails_with;
using test::GgufBuilder;

Result<GgufFile> read(const GgufBuilder& builder) { return GgufFile::open(builder.file()); }

TEST(GgufMetadata, IntegersOfAnyWidthByValue) {
  GgufBuilder gguf;
  gguf.u8("u8", 200).i8("i8", 100).u16("u16", 60'000).i16("i16", 30'000).u32("u32", 4'000'000'000U).i32("i32", 7);
  gguf.u64("u64", ~0ULL).i64("i64", 1LL << 62U).i8("minus", -3).f32("f32", 1.5F).boolean("yes", true);
  const auto file = read(gguf);
  ASSERT_TRUE(file) << file.error().message;
  const GgufMetadata& keys = file->metadata();
  EXPECT_EQ(**keys.find_u64("u8"), 200U);
  EXPECT_EQ(**keys.find_u64("i8"), 100U);
  EXPECT_EQ(**keys.find_u64("u16"), 60'000U);
  EXPECT_EQ(**keys.find_u64("i16"), 30'000U);
  EXPECT_EQ(**keys.find_u64("u32"), 4'000'000'000U);
  EXPECT_EQ(**keys.find_u64("i32"), 7U);
  EXPECT_EQ(**keys.find_u64("u64"), ~0ULL);
  EXPECT_EQ(**keys.find_u64("i64"), 1ULL << 62U);
  EXPECT_EQ(**keys.find_i64("minus"), -3);
  EXPECT_FALSE(keys.find_u64("absent")->has_value());
  EXPECT_TRUE(fails_with(keys.find_u64("minus"), {"test.gguf", "key 'minus'", "non-negative", "-3"}));
  EXPECT_TRUE(fails_with(keys.find_i64("u64"), {"key 'u64'", "exceeds the int64 range"}));
  EXPECT_TRUE(fails_with(keys.find_u64("f32"), {"key 'f32'", "expected an integer, found float32"}));
  EXPECT_TRUE(fails_with(keys.find_u64("yes"), {"expected an integer, found bool"}));
}

TEST(GgufMetadata, OtherScalars) {
  GgufBuilder gguf;
  gguf.f32("f32", 0.1F)
      .f64("f64", 0.1)
      .boolean("no", false)
      .string("text", std::string_view("a\0\xff\n", 4))
      .u32("n", 1);
  const auto file = read(gguf);
  ASSERT_TRUE(file) << file.error().message;
  const GgufMetadata& keys = file->metadata();
  EXPECT_EQ(**keys.find_f32("f32"), 0.1F);
  EXPECT_EQ(**keys.find_f64("f64"), 0.1);
  EXPECT_EQ(**keys.find_bool("no"), false);
  EXPECT_EQ(**keys.find_string("text"), std::string_view("a\0\xff\n", 4));  // any bytes are fine in values
  EXPECT_TRUE(fails_with(keys.find_bool("n"), {"expected bool, found uint32"}));
  EXPECT_TRUE(fails_with(keys.find_string("n"), {"expected string, found uint32"}));
  EXPECT_TRUE(fails_with(keys.find_f32("n"), {"expected float32, found uint32"}));
}

TEST(GgufMetadata, Arrays) {
  GgufBuilder gguf;
  gguf.strings("tokens", {"a", "", "\xE4\xB8\xAD"}).f32_array("floats", {1, -2}).i32_array("types", {1, -3});
  gguf.u8_array("small", {1, 255}).bool_array("flags", {1, 0}).strings("none", {}).raw_array("empty", 6, 0, "");
  const auto file = read(gguf);
  ASSERT_TRUE(file) << file.error().message;
  const GgufMetadata& keys = file->metadata();
  const auto tokens = keys.find_strings("tokens");
  ASSERT_TRUE(tokens);
  EXPECT_EQ((*tokens)->views(), (std::vector<std::string_view>{"a", "", "\xE4\xB8\xAD"}));
  EXPECT_EQ(**keys.find_floats("floats"), (std::vector<float>{1, -2}));
  EXPECT_EQ(**keys.find_integers("types"), (std::vector<std::int64_t>{1, -3}));
  EXPECT_EQ(**keys.find_integers("small"), (std::vector<std::int64_t>{1, 255}));
  EXPECT_EQ(**keys.find_bools("flags"), (std::vector<bool>{true, false}));
  EXPECT_TRUE((*keys.find_strings("none"))->empty());
  EXPECT_TRUE((*keys.find_floats("empty"))->empty());
  EXPECT_FALSE(keys.find_strings("absent")->has_value());
}

TEST(GgufMetadataHostile, C8KeyLengths) {
  const auto with_length = [](std::uint64_t length, std::string_view rest) {
    std::string bytes;
    append_number(bytes, length);
    bytes += rest;
    GgufBuilder gguf;
    gguf.u32("first", 1).raw_key_bytes(bytes);
    return read(gguf);
  };
  EXPECT_TRUE(fails_with(with_length(~0ULL, "abc"), {"key #1 length 18446744073709551615 exceeds remaining 3 bytes"}));
  EXPECT_TRUE(fails_with(with_length(4, "abc"), {"key #1 length 4 exceeds remaining 3 bytes"}));
  EXPECT_TRUE(fails_with(with_length(0, "abc"), {"key #1 is empty"}));
  EXPECT_TRUE(fails_with(with_length(65'536, std::string(70'000, 'k')), {"key #1 length 65536", "limit of 65535"}));
}

TEST(GgufMetadataHostile, C9KeyText) {
  for (const auto& [key, shown] : std::vector<std::pair<std::string, std::string>>{
           {std::string("a\0b", 3), "a\\x00b"}, {"a\nb", "a\\nb"}, {"\x1b[2J", "\\x1B[2J"}, {"a\xff", "a\\xFF"}}) {
    GgufBuilder gguf;
    gguf.u32(key, 1);
    EXPECT_TRUE(fails_with(read(gguf), {"key #0", shown}));
  }
}

TEST(GgufMetadataHostile, C10DuplicateKey) {
  GgufBuilder gguf;
  gguf.u32("a", 1).u32("b", 1).string("a", "x");
  EXPECT_TRUE(fails_with(read(gguf), {"duplicate key 'a' (#0, #2)"}));
}

TEST(GgufMetadataHostile, C12Arrays) {
  const auto with_array = [](std::uint32_t type, std::uint64_t count, std::string_view bytes) {
    GgufBuilder gguf;
    gguf.raw_array("list", type, count, bytes);
    return read(gguf);
  };
  EXPECT_TRUE(
      fails_with(with_array(4, 1ULL << 62U, "abcd"), {"key 'list'", "4611686018427387904", "limit of 16777216"}));
  EXPECT_TRUE(fails_with(with_array(4, 100, "abcd"), {"array of 100 uint32", "exceeds remaining 4 bytes"}));
  EXPECT_TRUE(fails_with(with_array(9, 1, "abcd"), {"key 'list'", "array of arrays"}));
  EXPECT_TRUE(fails_with(with_array(13, 1, "abcd"), {"key 'list'", "element type 13", "unknown"}));
  EXPECT_TRUE(fails_with(with_array(7, 3, std::string_view("\0\1\2", 3)), {"key 'list'", "bool at byte", "is 2"}));
  std::string text;
  append_number(text, std::uint64_t{3});
  text += "abc";
  EXPECT_TRUE(fails_with(with_array(8, 2, text), {"key 'list'", "cut short"}));
  append_number(text, ~0ULL);
  EXPECT_TRUE(fails_with(with_array(8, 2, text), {"string length 18446744073709551615 exceeds remaining 0 bytes"}));
}

TEST(GgufMetadataHostile, ScalarsOfUnknownTypeAndOddBools) {
  for (const std::uint32_t type : {13U, 255U, 0xFFFFFFFFU}) {
    GgufBuilder gguf;
    gguf.raw_kv("k", type, "12345678");
    EXPECT_TRUE(fails_with(read(gguf), {"key 'k'", "value type", "unknown"}));
  }
  for (const char value : {'\2', '\xff'}) {
    GgufBuilder gguf;
    gguf.raw_kv("k", 7, std::string(1, value));
    EXPECT_TRUE(fails_with(read(gguf), {"key 'k'", "bool at byte", "expected 0 or 1"}));
  }
  GgufBuilder gguf;
  std::string length;
  append_number(length, std::uint64_t{17U << 20U});
  gguf.raw_kv("k", 8, length + std::string(17U << 20U, 'x'));
  EXPECT_TRUE(fails_with(read(gguf), {"key 'k'", "string length 17825792 exceeds the limit of 16777216"}));
}

TEST(GgufMetadataHostile, C13TypedReads) {
  GgufBuilder gguf;
  gguf.u8_array("scores8", {1, 2}).i64_array("scores64", {1, 2}).strings("scores_text", {"1"}).u32("scalar", 3);
  const auto file = read(gguf);
  ASSERT_TRUE(file) << file.error().message;
  const GgufMetadata& keys = file->metadata();
  EXPECT_TRUE(fails_with(keys.find_floats("scores8"), {"expected float32[], found uint8[]"}));
  EXPECT_TRUE(fails_with(keys.find_floats("scores64"), {"expected float32[], found int64[]"}));
  EXPECT_TRUE(fails_with(keys.find_floats("scores_text"), {"expected float32[], found string[]"}));
  EXPECT_TRUE(fails_with(keys.find_floats("scalar"), {"expected float32[], found uint32"}));
  EXPECT_TRUE(fails_with(keys.find_strings("scores8"), {"expected string[], found uint8[]"}));
}

}  // namespace
}  // namespace vernier
