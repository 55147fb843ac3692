// Whole GGUF files: headers, tensor infos and where the data lie. "C5" and the like are rows of the list of hostile
// inputs that docs/formats/gguf.md explains.
#include "checkpoint/gguf.h"

#include <gtest/gtest.h>

#include "checkpoint/gguf_types.h"
#include "support/expect_error.h"
#include "support/gguf_builder.h"
#include "support/test_data.h"

namespace vernier {
namespace {

using test::as_file;
using test::fails_with;
using test::GgufBuilder;

Result<GgufFile> read(const GgufBuilder& builder, const OpenOptions& options = {}) {
  return GgufFile::open(builder.file(), options);
}
Result<GgufFile> read_bytes(std::string_view bytes) { return GgufFile::open(as_file(bytes, "test.gguf")); }

/// Type ids as the files have them.
enum : std::uint32_t {
  kF32 = 0,
  kQ4_0 = 2,
  kQ8_0 = 8,
  kQ4K = 12,
  kQ6K = 14,
  kIq2Xxs = 16,
  kI8 = 24,
  kE2M1By32 = 39,
  kE2M1By16 = 40
};

GgufBuilder one_tensor(std::vector<std::int64_t> dims, std::uint32_t type, std::size_t bytes = 64) {
  GgufBuilder gguf;
  gguf.tensor("x", std::move(dims), type, std::string(bytes, '\0'));
  return gguf;
}

TEST(Gguf, ReadsWhatTheUsualWriterWrites) {
  const auto gguf = GgufFile::open(test::test_data("containers/sample.gguf"));
  ASSERT_TRUE(gguf) << gguf.error().message;
  EXPECT_EQ(gguf->version(), 3U);
  EXPECT_EQ(gguf->alignment(), 32U);
  EXPECT_EQ(**gguf->metadata().find_string("general.architecture"), "llama");
  EXPECT_EQ(**gguf->metadata().find_u64("llama.block_count"), 2U);
  ASSERT_EQ(gguf->tensors().size(), 4U);
  const TensorRecord& embedding = gguf->tensors()[0];
  EXPECT_EQ(embedding.name, "token_embd.weight");
  EXPECT_EQ(embedding.shape, (std::vector<std::uint64_t>{5, 32}));
  EXPECT_EQ(embedding.type_name, "f32");
  EXPECT_EQ(embedding.dtype, DType::kF32);
  EXPECT_EQ(embedding.num_elements(), 160U);
  const auto bytes = embedding.bytes();
  ASSERT_TRUE(bytes);
  float last = 0;
  std::memcpy(&last, bytes->data() + bytes->size() - 4, 4);
  EXPECT_EQ(last, 159.0F);
  const TensorRecord& keys = gguf->tensors()[3];
  EXPECT_EQ(keys.shape, (std::vector<std::uint64_t>{2, 32}));
  EXPECT_EQ(keys.ggml_type, kQ8_0);
  EXPECT_FALSE(keys.dtype);
  EXPECT_EQ((*keys.bytes())[67], std::byte{67});
}

TEST(Gguf, DimensionsAreTurnedRound) {
  GgufBuilder gguf;
  gguf.tensor("experts", {64, 3, 2}, kE2M1By16, std::string(36 * 6, '\1'));
  const auto file = read(gguf);
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ(file->tensors()[0].shape, (std::vector<std::uint64_t>{2, 3, 64}));
}

TEST(Gguf, Version2AndFilesWithoutTensors) {
  GgufBuilder gguf;
  gguf.string("general.architecture", "llama").strings("tokenizer.ggml.tokens", {"a", "b"});
  gguf.version = 2;
  const auto file = read(gguf);
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ(file->version(), 2U);
  EXPECT_TRUE(file->tensors().empty());
  // Some writers pad even then.
  std::string padded = gguf.build();
  padded.resize((padded.size() + 31) / 32 * 32);
  EXPECT_TRUE(read_bytes(padded));
}

// Known fault: adding a whole block of padding when the infos end on the alignment.
TEST(Gguf, HeaderThatEndsOnTheAlignment) {
  for (std::size_t extra = 0; extra < 32; ++extra) {
    GgufBuilder gguf;
    gguf.string("pad", std::string(extra, 'x'));
    gguf.f32_tensor("t", {1}, {42});
    std::size_t header = 0;
    const std::string bytes = gguf.build(&header);
    const auto file = read_bytes(bytes);
    ASSERT_TRUE(file) << file.error().message;
    EXPECT_EQ(file->tensors()[0].extent.offset, (header + 31) / 32 * 32);
    float value = 0;
    std::memcpy(&value, file->tensors()[0].bytes()->data(), 4);
    EXPECT_EQ(value, 42);
  }
}

TEST(Gguf, OtherAlignment) {
  GgufBuilder gguf;
  gguf.u32("general.alignment", 64);
  gguf.alignment = 64;
  gguf.f32_tensor("a", {1}, {1});
  gguf.f32_tensor("b", {1}, {2});
  const auto file = read(gguf);
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ(file->alignment(), 64U);
  EXPECT_EQ(file->tensors()[1].extent.offset - file->tensors()[0].extent.offset, 64U);
}

TEST(GgufHostile, C1EmptyAndC2Short) {
  EXPECT_TRUE(fails_with(read_bytes(""), {"test.gguf", "empty file"}));
  EXPECT_TRUE(fails_with(read_bytes("GGU"), {"too short for a header: 3 of 24 bytes"}));
  EXPECT_TRUE(fails_with(read_bytes(std::string_view("GGUF\3\0\0\0\0", 9)), {"too short for a header: 9 of 24 bytes"}));
}

TEST(GgufHostile, C3LookAlikes) {
  EXPECT_TRUE(fails_with(read_bytes("version https://git-lfs.github.com/spec/v1\noid sha256:0"),
                         {"not a GGUF file", "Git-LFS pointer", "git lfs pull"}));
  EXPECT_TRUE(fails_with(read_bytes("\n<!DOCTYPE html><html>"), {"looks like an HTML page", "download"}));
  EXPECT_TRUE(
      fails_with(read_bytes("PK\x03\x04 and so on"), {"zip", "pickle is never loaded; convert to safetensors"}));
  EXPECT_TRUE(fails_with(read_bytes("\x80\x02}q"), {"pickle is never loaded"}));
  EXPECT_TRUE(fails_with(read_bytes("tjgg\1\0"), {"GGJT"}));
  EXPECT_TRUE(fails_with(read_bytes("\x1b[31mred"), {"not a GGUF file: begins with '\\x1B[31'"}));
}

TEST(GgufHostile, C4BigEndian) {
  GgufBuilder gguf;
  gguf.version = 0x03000000;
  EXPECT_TRUE(fails_with(read(gguf), {"big-endian file not supported"}));
  gguf.magic = "FUGG";
  EXPECT_TRUE(fails_with(read(gguf), {"big-endian file not supported"}));
}

TEST(GgufHostile, C5Version) {
  for (const std::uint32_t version : {0U, 1U, 4U, 0xFFFFFFFFU}) {
    GgufBuilder gguf;
    gguf.version = version;
    EXPECT_TRUE(fails_with(read(gguf), {fmt::format("GGUF version {}; supported 2-3", version)}));
  }
}

TEST(GgufHostile, C6C7Counts) {
  for (const std::int64_t count : {1LL << 61U, -1LL, 65'537LL}) {
    GgufBuilder gguf;
    gguf.num_keys = count;
    EXPECT_TRUE(fails_with(read(gguf), {fmt::format("n_kv {} exceeds limit 65536", count)}));
  }
  for (const std::int64_t count : {1LL << 60U, -1LL, 131'073LL}) {
    GgufBuilder gguf;
    gguf.num_tensors = count;
    EXPECT_TRUE(fails_with(read(gguf), {fmt::format("n_tensors {} exceeds limit 131072", count)}));
  }
  GgufBuilder gguf;
  gguf.num_tensors = 3;  // within the limit, but not there
  EXPECT_TRUE(fails_with(read(gguf), {"tensor #0", "cut short"}));
}

TEST(GgufHostile, C10DuplicateTensor) {
  GgufBuilder gguf;
  gguf.f32_tensor("x", {1}, {1});
  gguf.f32_tensor("y", {1}, {1});
  gguf.f32_tensor("x", {1}, {1});
  EXPECT_TRUE(fails_with(read(gguf), {"duplicate tensor 'x' (#0, #2)"}));
  GgufBuilder nul;
  nul.f32_tensor("x", {1}, {1});
  nul.f32_tensor(std::string_view("x\0y", 3), {1}, {1});
  EXPECT_TRUE(fails_with(read(nul), {"tensor #1", "x\\x00y"}));
}

TEST(GgufHostile, C14Alignment) {
  for (const std::uint32_t value : {0U, 4U, 13U, 48U, 1U << 31U}) {
    GgufBuilder gguf;
    gguf.u32("general.alignment", value);
    EXPECT_TRUE(fails_with(read(gguf), {"general.alignment", "power of two", fmt::format("found {}", value)}));
  }
  GgufBuilder gguf;
  gguf.i32("general.alignment", 32);
  EXPECT_TRUE(fails_with(read(gguf), {"general.alignment", "expected uint32, found int32"}));
}

TEST(GgufHostile, C15NumberOfDimensions) {
  for (const std::uint32_t count : {5U, 0xFFFFFFFFU}) {
    GgufBuilder gguf = one_tensor({}, kF32);
    GgufBuilder wrong;
    wrong.tensor("x", {1, 1, 1, 1, 1}, kF32, "abcd").num_dims = count;
    EXPECT_TRUE(fails_with(read(wrong), {"tensor 'x'", fmt::format("has {} dimensions", count), "at most 4"}));
  }
  const auto scalar = read(one_tensor({}, kF32, 4));
  ASSERT_TRUE(scalar) << scalar.error().message;
  EXPECT_TRUE(scalar->tensors()[0].shape.empty());
  EXPECT_TRUE(fails_with(read(one_tensor({}, kQ8_0, 34)), {"row length 1 not multiple of 32"}));
}

TEST(GgufHostile, C16Dimensions) {
  EXPECT_TRUE(fails_with(read(one_tensor({4, 0}, kF32)), {"tensor 'x'", "dimension 1 is 0", "zero size"}));
  EXPECT_TRUE(fails_with(read(one_tensor({4, -1}, kF32)), {"dimension 1 is negative: -1"}));
  EXPECT_TRUE(fails_with(read(one_tensor({std::numeric_limits<std::int64_t>::max()}, kF32)),
                         {"tensor 'x'", "overflows 64 bits"}));
}

// C17-C24: sizes that come out small or zero when they're computed without looking.
TEST(GgufHostile, SizesThatWrap) {
  const std::int64_t two32 = 1LL << 32U;
  const std::int64_t two16 = 1LL << 16U;
  const std::vector<std::pair<std::vector<std::int64_t>, std::uint32_t>> vectors = {
      {{two32, two32}, kF32},
      {{two32, two32}, kQ4_0},
      {{two16, two16, two16, two16}, kF32},
      {{4194305, 4194305, 211106198978564}, kF32},
      {{5124095576030431008}, kQ4_0},
      {{2170205185142300192}, kQ8_0},
      {{2170205185142300192}, kE2M1By32},
      {{1LL << 62U}, kE2M1By16},
      {{1LL << 60U}, kQ4K},
      {{6412439606575225088}, kQ6K},
      {{(1LL << 62U) - 1}, kF32},
  };
  for (const auto& [dims, type] : vectors) {
    EXPECT_TRUE(fails_with(read(one_tensor(dims, type)), {"tensor 'x'", "size", "overflows 64 bits"})) << dims[0];
  }
}

TEST(GgufHostile, RunningOffsetThatWraps) {
  const std::int64_t huge = std::numeric_limits<std::int64_t>::max() - 63;
  GgufBuilder gguf;
  gguf.string("some.key", std::string(100, 'x'));
  gguf.tensor("a", {huge}, kI8, std::string(64, '\0')).offset = 0;
  gguf.tensor("b", {huge}, kI8, std::string(64, '\0')).offset = static_cast<std::uint64_t>(huge);
  EXPECT_TRUE(fails_with(read(gguf), {"overflows 64 bits"}));
}

TEST(GgufHostile, C25RowLength) {
  EXPECT_TRUE(fails_with(read(one_tensor({31}, kQ4_0)), {"tensor 'x'", "row length 31 not multiple of 32", "q4_0"}));
  EXPECT_TRUE(fails_with(read(one_tensor({48}, kE2M1By16)), {"row length 48 not multiple of 64"}));
}

TEST(GgufHostile, C26TypeIds) {
  for (const std::uint32_t type : {4U, 5U, 31U, 36U, 43U, 9999U}) {
    EXPECT_TRUE(fails_with(read(one_tensor({32}, type)), {fmt::format("type id {} unknown or removed", type)}));
  }
  EXPECT_TRUE(fails_with(read(one_tensor({32}, 0xFFFFFFFFU)), {"type id -1 unknown or removed"}));
}

TEST(GgufHostile, C27TypesThatAreOnlyKnown) {
  const auto file = read(one_tensor({256}, kIq2Xxs, 66));
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ(file->tensors()[0].type_name, "iq2_xxs");
}

TEST(GgufHostile, C28Offsets) {
  const auto with_second_offset = [](std::uint64_t offset) {
    GgufBuilder gguf;
    gguf.f32_tensor("a", {16}, std::vector<float>(16));
    gguf.f32_tensor("b", {16}, std::vector<float>(16)).offset = offset;
    return read(gguf);
  };
  EXPECT_TRUE(with_second_offset(64));
  EXPECT_TRUE(fails_with(with_second_offset(65), {"tensor 'b'", "offset 65 is not aligned to 32"}));
  EXPECT_TRUE(fails_with(with_second_offset(96), {"tensor 'b'", "offset 96 is not the running sum", "64"}));
  EXPECT_TRUE(fails_with(with_second_offset(32), {"tensor 'b'", "offset 32 overlaps tensor #0"}));
  EXPECT_TRUE(fails_with(with_second_offset(1ULL << 63U), {"not the running sum"}));
  GgufBuilder gguf;
  gguf.pad_end = false;
  gguf.f32_tensor("a", {3}, {1, 2, 3});
  std::string bytes = gguf.build();
  EXPECT_TRUE(read_bytes(bytes));  // the last padding may be missing
  bytes.pop_back();
  EXPECT_TRUE(fails_with(read_bytes(bytes), {"tensor 'a'", fmt::format("end at byte {}", bytes.size() + 1),
                                             fmt::format("the file has {} bytes", bytes.size())}));
}

TEST(GgufHostile, C30TrailingGarbage) {
  GgufBuilder gguf;
  gguf.f32_tensor("a", {8}, std::vector<float>(8));
  const std::string bytes = gguf.build() + "x";
  EXPECT_TRUE(fails_with(read_bytes(bytes), {"1 bytes of trailing garbage", "--lenient"}));
  const auto lenient = GgufFile::open(as_file(bytes, "test.gguf"), {.lenient = true});
  ASSERT_TRUE(lenient) << lenient.error().message;
  ASSERT_EQ(lenient->warnings().size(), 1U);
  EXPECT_NE(lenient->warnings()[0].find("trailing garbage"), std::string::npos);
  // A second file behind the first, as an unaligned tail once was read.
  EXPECT_TRUE(fails_with(read_bytes(gguf.build() + gguf.build()), {"trailing garbage"}));
}

TEST(GgufHostile, C49NamesAreShownEscaped) {
  GgufBuilder gguf;
  gguf.f32_tensor("a\x1b[31m\nb", {1}, {1});
  EXPECT_TRUE(fails_with(read(gguf), {"tensor #0", "a\\x1B[31m\\nb"}));
  GgufBuilder ill_formed;
  ill_formed.f32_tensor("a\xff", {1}, {1});
  EXPECT_TRUE(fails_with(read(ill_formed), {"a\\xFF"}));
}

TEST(GgufHostile, TensorNames) {
  GgufBuilder longest;
  longest.f32_tensor(std::string(255, 'n'), {1}, {1});
  EXPECT_TRUE(read(longest));
  GgufBuilder too_long;
  too_long.f32_tensor(std::string(256, 'n'), {1}, {1});
  EXPECT_TRUE(fails_with(read(too_long), {"tensor #0", "256 bytes", "limit of 255"}));
  GgufBuilder empty;
  empty.f32_tensor("", {1}, {1});
  EXPECT_TRUE(fails_with(read(empty), {"tensor #0", "empty"}));
  for (const std::uint64_t length : {~0ULL, 1ULL << 62U, 1000ULL}) {
    GgufBuilder wrong;
    wrong.f32_tensor("x", {1}, {1}).name_length = length;
    EXPECT_TRUE(fails_with(read(wrong), {"tensor #0", fmt::format("name length {} exceeds remaining", length)}));
  }
}

TEST(GgufTypes, TableIsSortedAndAgreesWithGgml) {
  std::uint32_t before = 0;
  for (const GgmlType& type : ggml_types()) {
    EXPECT_TRUE(type.id == 0 || type.id > before);
    before = type.id;
    EXPECT_EQ(*find_ggml_type(type.id), &type);
    EXPECT_EQ(type.dtype.has_value(), type.block_values == 1) << type.name;
  }
  EXPECT_EQ(ggml_types().size(), 35U);
  EXPECT_EQ((*find_ggml_type(kQ6K))->block_bytes, 210U);
  EXPECT_EQ((*find_ggml_type(kE2M1By16))->block_bytes, 36U);
  EXPECT_EQ((*find_ggml_type(kE2M1By32))->block_values, 32U);
}

}  // namespace
}  // namespace vernier
