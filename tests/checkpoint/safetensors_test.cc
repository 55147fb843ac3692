// Whole safetensors files. "C35" and the like are rows of the list of hostile inputs that docs/formats/safetensors.md
// explains.
#include "checkpoint/safetensors.h"

#include <gtest/gtest.h>

#include <limits>

#include "support/expect_error.h"
#include "support/safetensors_builder.h"
#include "support/test_data.h"

namespace vernier {
namespace {

using test::as_file;
using test::fails_with;
using test::SafetensorsBuilder;

Result<SafetensorsFile> read_bytes(std::string_view bytes, const OpenOptions& options = {}) {
  return SafetensorsFile::open(as_file(bytes, "test.safetensors"), options);
}
Result<SafetensorsFile> read(std::string_view json, std::size_t data_size = 0) {
  return read_bytes(SafetensorsBuilder::from_header(json, std::string(data_size, '\0')));
}
/// A file with one tensor "x" of that entry.
Result<SafetensorsFile> read_entry(std::string_view dtype, std::string_view shape, std::string_view offsets,
                                   std::size_t data_size) {
  return read(fmt::format(R"({{"x":{{"dtype":"{}","shape":{},"data_offsets":{}}}}})", dtype, shape, offsets),
              data_size);
}

TEST(Safetensors, ReadsWhatTheUsualWriterWrites) {
  const auto file = SafetensorsFile::open(test::test_data("containers/sample.safetensors"));
  ASSERT_TRUE(file) << file.error().message;
  ASSERT_EQ(file->metadata().size(), 1U);
  EXPECT_EQ(file->metadata()[0].second, "pt");
  ASSERT_EQ(file->tensors().size(), 5U);
  const auto find = [&](std::string_view name) -> const TensorRecord& {
    for (const TensorRecord& record : file->tensors()) {
      if (record.name == name) return record;
    }
    ADD_FAILURE() << name;
    return file->tensors()[0];
  };
  const TensorRecord& embedding = find("model.embed_tokens.weight");
  EXPECT_EQ(embedding.shape, (std::vector<std::uint64_t>{5, 32}));
  EXPECT_EQ(embedding.dtype, DType::kF32);
  EXPECT_FALSE(embedding.ggml_type);
  float last = 0;
  std::memcpy(&last, embedding.bytes()->data() + 636, 4);
  EXPECT_EQ(last, 159.0F);
  EXPECT_TRUE(find("model.layers.0.scale").shape.empty());
  EXPECT_EQ(find("model.layers.0.scale").num_elements(), 1U);
  EXPECT_EQ(find("model.layers.0.empty").num_elements(), 0U);
  EXPECT_EQ((*find("model.layers.0.codes").bytes())[23], std::byte{23});
}

// The worked example of the format's description: data at an odd offset, header padded with spaces.
TEST(Safetensors, WorkedExample) {
  std::string json =
      R"({"s":{"dtype":"F8_E4M3","shape":[1,2],"data_offsets":[0,2]},"w":{"dtype":"U8","shape":[1,16],"data_offsets":[2,18]}})";
  json.resize(120, ' ');
  const auto file = read(json, 18);
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ(file->tensors()[1].extent.offset, 130U);
  EXPECT_EQ(file->tensors()[0].dtype, DType::kF8E4M3);
}

TEST(Safetensors, EveryDtype) {
  for (const auto& [name, bits] : std::vector<std::pair<std::string, unsigned>>{
           {"BOOL", 8},    {"F4", 4},      {"F6_E2M3", 6}, {"F6_E3M2", 6},     {"U8", 8},          {"I8", 8},
           {"F8_E5M2", 8}, {"F8_E4M3", 8}, {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8}, {"I16", 16},
           {"U16", 16},    {"F16", 16},    {"BF16", 16},   {"I32", 32},        {"U32", 32},        {"F32", 32},
           {"C64", 64},    {"F64", 64},    {"I64", 64},    {"U64", 64}}) {
    const std::size_t size = 16 * bits / 8;
    const auto file = read_entry(name, "[2,8]", fmt::format("[0,{}]", size), size);
    ASSERT_TRUE(file) << file.error().message;
    EXPECT_EQ(file->tensors()[0].type_name, name);
    if (file->tensors()[0].dtype) {
      EXPECT_EQ(dtype_name(*file->tensors()[0].dtype), name);
      EXPECT_EQ(dtype_bits(*file->tensors()[0].dtype), bits);
    }
  }
}

TEST(Safetensors, NoTensorsAtAll) {
  EXPECT_TRUE(read("{}"));
  EXPECT_TRUE(read(R"({"__metadata__":{"format":"pt"}}  )"));
}

TEST(SafetensorsHostile, C1C2EmptyAndShort) {
  EXPECT_TRUE(fails_with(read_bytes(""), {"test.safetensors", "empty file"}));
  EXPECT_TRUE(fails_with(read_bytes("1234567"), {"too short", "7 of 8 bytes"}));
}

TEST(SafetensorsHostile, C3C50LookAlikes) {
  EXPECT_TRUE(
      fails_with(read_bytes("version https://git-lfs.github.com/spec/v1\n"), {"not a safetensors file", "Git-LFS"}));
  EXPECT_TRUE(fails_with(read_bytes("<!doctype html>"), {"HTML"}));
  EXPECT_TRUE(fails_with(read_bytes("PK\x03\x04\x14\x01\x01\x08zip"), {"PyTorch", "pickle is never loaded"}));
  EXPECT_TRUE(fails_with(read_bytes("\x80\x02\x8a\nl\xfc\x9c\x46\xf9"), {"pickle", "convert to safetensors"}));
  EXPECT_TRUE(fails_with(read_bytes(std::string_view("GGUF\3\0\0\1............", 20)), {"GGUF"}));
}

TEST(SafetensorsHostile, C35HeaderLength) {
  const auto with_length = [](std::uint64_t length, std::string_view rest) {
    return read_bytes(SafetensorsBuilder::from_header(rest, "", length));
  };
  EXPECT_TRUE(fails_with(with_length(~0ULL, "{}"), {"header length 18446744073709551615 exceeds the 2 bytes"}));
  EXPECT_TRUE(fails_with(with_length(3, "{}"), {"header length 3 exceeds the 2 bytes"}));
  EXPECT_TRUE(fails_with(with_length(0, "{}"), {"header length is 0"}));
  EXPECT_TRUE(fails_with(with_length(1, "{}"), {"JSON", "found the end"}));
  EXPECT_TRUE(fails_with(with_length(100'000'001, "{" + std::string(100'000'000, ' ')),
                         {"header length 100000001 exceeds the limit of 100000000"}));
}

TEST(SafetensorsHostile, C36HeaderText) {
  EXPECT_TRUE(fails_with(read("\xEF\xBB\xBF{}"), {"must begin with '{'", "byte 0"}));
  EXPECT_TRUE(fails_with(read(" {}"), {"must begin with '{'"}));
  EXPECT_TRUE(fails_with(read("[]"), {"must begin with '{'"}));
  EXPECT_TRUE(fails_with(read("{\"\xff\":1}"), {"byte 2", "UTF-8"}));
  EXPECT_TRUE(fails_with(read("{} x"), {"byte 3", "nothing more"}));
  EXPECT_TRUE(fails_with(read("{\"x\":" + std::string(100'000, '[')), {"tensor 'x'", "byte 5", "expected an object"}));
  EXPECT_TRUE(fails_with(read(R"({"x":{"a":)" + std::string(100'000, '[')), {"unknown field 'a'"}));
  const auto lenient =
      read_bytes(SafetensorsBuilder::from_header(R"({"x":{"a":)" + std::string(100'000, '['), ""), {.lenient = true});
  EXPECT_TRUE(fails_with(lenient, {"nesting deeper than 64 levels"}));
  for (const char* number :
       {"1e400", "-0", "1.5", "-1", "1e2", "01", "true", "\"1\"", "null", "99999999999999999999"}) {
    EXPECT_TRUE(fails_with(read_entry("F32", fmt::format("[{}]", number), "[0,4]", 4),
                           {"tensor 'x'", "shape", "JSON at byte"}));
  }
}

TEST(SafetensorsHostile, C37DuplicateKeys) {
  constexpr std::string_view kEntry = R"({"dtype":"U8","shape":[1],"data_offsets":[0,1]})";
  EXPECT_TRUE(fails_with(read(fmt::format(R"({{"a":{0},"a":{0}}})", kEntry), 1), {"duplicate tensor 'a' (#0, #1)"}));
  EXPECT_TRUE(fails_with(read(fmt::format(R"({{"a":{0},"\u0061":{0}}})", kEntry), 1), {"duplicate tensor 'a'"}));
  EXPECT_TRUE(fails_with(read(R"({"a":{"dtype":"U8","dtype":"U8","shape":[1],"data_offsets":[0,1]}})", 1),
                         {"tensor 'a'", "duplicate key 'dtype'"}));
  EXPECT_TRUE(fails_with(read(R"({"__metadata__":{},"__metadata__":{}})"), {"duplicate key '__metadata__'"}));
  EXPECT_TRUE(fails_with(read(R"({"__metadata__":{"a":"1","\u0061":"2"}})"), {"duplicate key 'a'"}));
}

TEST(SafetensorsHostile, C38Offsets) {
  EXPECT_TRUE(fails_with(read_entry("U8", "[4]", "[4,0]", 4), {"tensor 'x'", "reversed"}));
  EXPECT_TRUE(fails_with(read_entry("U8", "[4]", "[-4,0]", 4), {"data_offsets", "non-negative"}));
  EXPECT_TRUE(fails_with(read_entry("U8", "[4]", "[0,4,8]", 4), {"data_offsets has more than 2 entries"}));
  EXPECT_TRUE(fails_with(read_entry("U8", "[4]", "[0]", 4), {"data_offsets has 1 entries, expected 2"}));
  EXPECT_TRUE(fails_with(read_entry("F32", "[4]", "[0,12]", 12), {"hold 12 bytes", "needs 16"}));
  EXPECT_TRUE(fails_with(read_entry("U8", "[4]", "[1,5]", 5), {"hole of 1 bytes before tensor 'x'"}));
  EXPECT_TRUE(fails_with(read_entry("U8", "[4]", "[0,4]", 3), {"end at data byte 4", "the file has 3", "cut short"}));
  EXPECT_TRUE(fails_with(read_entry("U8", "[4]", "[0,4]", 5), {"1 bytes of trailing garbage"}));
  SafetensorsBuilder overlap;
  overlap.tensor("a", "U8", {4}, "abcd");
  overlap.tensor("b", "U8", {4}, "efgh").offsets = {2, 6};
  EXPECT_TRUE(fails_with(read_bytes(overlap.build()), {"tensor 'b' at data byte 2 overlaps tensor 'a'"}));
  SafetensorsBuilder hole;
  hole.tensor("a", "U8", {4}, "abcd");
  hole.tensor("b", "U8", {4}, "efghij").offsets = {6, 10};
  EXPECT_TRUE(fails_with(read_bytes(hole.build()), {"hole of 2 bytes before tensor 'b' at data byte 6"}));
  SafetensorsBuilder same;
  same.tensor("a", "U8", {4}, "abcd");
  same.tensor("b", "U8", {4}, "").offsets = {0, 4};
  EXPECT_TRUE(fails_with(read_bytes(same.build()), {"overlaps"}));
}

TEST(SafetensorsHostile, AnyOrderOfTensorsIsFine) {
  SafetensorsBuilder file;
  file.tensor("late", "U8", {2}, "ab").offsets = {2, 4};
  file.tensor("empty", "F32", {0, 3}, "").offsets = {2, 2};
  file.tensor("early", "U8", {2}, "cd").offsets = {0, 2};
  EXPECT_TRUE(read_bytes(file.build()));
}

TEST(SafetensorsHostile, C39ShapesThatWrap) {
  const std::string two32 = "4294967296";
  for (const std::string& shape :
       {"[" + two32 + "," + two32 + "]", std::string("[65536,65536,65536,65536]"),
        std::string("[4194305,4194305,211106198978564]"), std::string("[4611686018427387905]"),
        std::string("[18446744073709551615,18446744073709551615]"), std::string("[2305843009213693953]"),
        "[" + two32 + "," + two32 + ",0]"}) {
    for (const char* offsets : {"[0,0]", "[0,4]"}) {
      EXPECT_TRUE(fails_with(read_entry("F32", shape, offsets, 4), {"tensor 'x'", "overflows 64 bits"})) << shape;
    }
  }
  EXPECT_TRUE(fails_with(read_entry("U8", "[9223372036854775744]", "[0,9223372036854775744]", 4), {"overflows"}));
  EXPECT_TRUE(fails_with(read_entry("U8", "[1152921504606846976]", "[0,1152921504606846976]", 4), {"cut short"}));
}

TEST(SafetensorsHostile, C40Dtypes) {
  EXPECT_TRUE(read_entry("F4", "[2,8]", "[0,8]", 8));  // logical shape, not packed
  EXPECT_TRUE(fails_with(read_entry("F4", "[3]", "[0,2]", 2), {"row of 3 F4 elements is not a whole number of bytes"}));
  EXPECT_TRUE(fails_with(read_entry("F4", "[2,3]", "[0,3]", 3), {"row of 3 F4"}));
  EXPECT_TRUE(fails_with(read_entry("F6_E2M3", "[3]", "[0,3]", 3), {"row of 3 F6_E2M3"}));
  EXPECT_TRUE(fails_with(read_entry("F8_E9M9", "[1]", "[0,1]", 1), {"tensor 'x'", "unknown dtype 'F8_E9M9'"}));
  EXPECT_TRUE(fails_with(read_entry("f32", "[1]", "[0,4]", 4), {"unknown dtype 'f32'"}));
}

TEST(SafetensorsHostile, Entries) {
  EXPECT_TRUE(fails_with(read(R"({"x":{"shape":[1],"data_offsets":[0,1]}})", 1), {"tensor 'x'", "has no 'dtype'"}));
  EXPECT_TRUE(fails_with(read(R"({"x":{"dtype":"U8","data_offsets":[0,1]}})", 1), {"has no 'shape'"}));
  EXPECT_TRUE(fails_with(read(R"({"x":{"dtype":"U8","shape":[1]}})", 1), {"has no 'data_offsets'"}));
  EXPECT_TRUE(fails_with(read(R"({"x":[]})"), {"tensor 'x'", "expected an object"}));
  EXPECT_TRUE(fails_with(read(R"({"__metadata__":{"a":1}})"), {"expected a string"}));
  EXPECT_TRUE(fails_with(read(R"({"":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", 1), {"name is empty"}));
  EXPECT_TRUE(fails_with(read_entry("U8", "[1,1,1,1,1,1,1,1,1]", "[0,1]", 1), {"shape has more than 8 entries"}));
  EXPECT_TRUE(read_entry("U8", "[1,1,1,1,1]", "[0,1]", 1));
  const std::string name(256, 'n');
  EXPECT_TRUE(fails_with(read(fmt::format(R"({{"{}":{{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}}})", name), 1),
                         {"256 bytes", "limit of 255"}));
}

TEST(SafetensorsHostile, C49NamesAreShownEscaped) {
  EXPECT_TRUE(
      fails_with(read(R"({"a\u001b[31m\nb":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", 1), {"a\\x1B[31m\\nb"}));
  EXPECT_TRUE(fails_with(read(R"({"a\u0000b":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", 1), {"a\\x00b"}));
}

TEST(SafetensorsHostile, C30LenientTakesGarbageAndUnknownFields) {
  SafetensorsBuilder builder;
  builder.tensor("a", "U8", {4}, "abcd");
  const auto tail = read_bytes(builder.build() + "zz", {.lenient = true});
  ASSERT_TRUE(tail) << tail.error().message;
  EXPECT_EQ(tail->warnings().size(), 1U);
  const std::string json = R"({"x":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"strides":[{"a":[1]}]}})";
  EXPECT_TRUE(fails_with(read(json, 1), {"tensor 'x'", "unknown field 'strides'", "--lenient"}));
  const auto field = read_bytes(SafetensorsBuilder::from_header(json, "z"), {.lenient = true});
  ASSERT_TRUE(field) << field.error().message;
  EXPECT_EQ(field->warnings().size(), 1U);
}

}  // namespace
}  // namespace vernier
