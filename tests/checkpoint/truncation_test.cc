// Cuts and damages small real files everywhere: always an error with both sizes or a valid read, never more.
#include <gtest/gtest.h>

#include "checkpoint/gguf.h"
#include "checkpoint/safetensors.h"
#include "support/bytes.h"
#include "support/gguf_builder.h"
#include "support/test_data.h"

namespace vernier {
namespace {

/// Where to cut a file of `size` bytes: everywhere in the header, and at 100 points of the data.
std::vector<std::size_t> cuts(std::size_t header, std::size_t size) {
  std::vector<std::size_t> at;
  for (std::size_t i = 0; i < header; ++i) at.push_back(i);
  for (std::size_t i = 0; i < 100; ++i) at.push_back(header + (size - header) * i / 100);
  return at;
}

void expect_sizes(const Error& error, std::size_t size) {
  EXPECT_TRUE(error.code == ErrorCode::kCorrupt || error.code == ErrorCode::kUnsupported) << error.message;
  EXPECT_LT(error.message.size(), 400U);
  // What is there, stated as the size of the file or as what remains.
  const bool has_size = size == 0 || error.message.find(std::to_string(size)) != std::string::npos ||
                        error.message.find("remaining") != std::string::npos ||
                        error.message.find("bytes that follow") != std::string::npos;
  EXPECT_TRUE(has_size) << size << ": " << error.message;
}

TEST(Truncation, C29Gguf) {
  std::string bytes = test::load(test::test_data("containers/sample.gguf"));
  const auto whole = GgufFile::open(test::as_file(bytes, "whole.gguf"));
  ASSERT_TRUE(whole) << whole.error().message;
  const Extent last = whole->tensors().back().extent;
  bytes.resize(last.offset + last.size);  // without the padding, which may be missing
  const std::size_t header = whole->tensors().front().extent.offset;
  for (const std::size_t size : cuts(header, bytes.size())) {
    const auto cut = GgufFile::open(test::as_file(std::string_view(bytes).substr(0, size), "cut.gguf"));
    ASSERT_FALSE(cut) << size;
    expect_sizes(cut.error(), size);
  }
}

TEST(Truncation, C29Safetensors) {
  const std::string bytes = test::load(test::test_data("containers/sample.safetensors"));
  const auto whole = SafetensorsFile::open(test::as_file(bytes, "whole.safetensors"));
  ASSERT_TRUE(whole) << whole.error().message;
  std::size_t header = bytes.size();
  for (const TensorRecord& record : whole->tensors()) header = std::min<std::size_t>(header, record.extent.offset);
  for (const std::size_t size : cuts(header, bytes.size())) {
    const auto cut = SafetensorsFile::open(test::as_file(std::string_view(bytes).substr(0, size), "cut.safetensors"));
    ASSERT_FALSE(cut) << size;
    expect_sizes(cut.error(), size);
  }
}

/// Every byte of the header set to a few telling values: an error or a file whose extents lie within it.
template <class File>
void flip_everywhere(const std::string& bytes, std::size_t header) {
  for (std::size_t at = 0; at < header; ++at) {
    const auto flipped = static_cast<char>(bytes[at] ^ 1);
    for (const char value : {'\0', '\1', '\x7F', '\x80', '\xFF', flipped, '"', '}'}) {
      std::string damaged = bytes;
      damaged[at] = value;
      const auto file = File::open(test::as_file(damaged, "damaged"));
      if (!file) {
        ASSERT_LT(file.error().message.size(), 800U);
        continue;
      }
      for (const TensorRecord& record : file->tensors()) ASSERT_TRUE(record.bytes()) << at;
    }
  }
}

TEST(Damage, EveryHeaderByte) {
  flip_everywhere<GgufFile>(test::load(test::test_data("containers/sample.gguf")), 1000);
  flip_everywhere<SafetensorsFile>(test::load(test::test_data("containers/sample.safetensors")), 500);
}

// The strings of a mapped file may change under a reader when someone truncates the file.
TEST(Damage, StringsThatChangeAreStillWalkedSafely) {
  test::GgufBuilder gguf;
  gguf.strings("tokens", {"abc", "defgh", "ij"});
  std::string bytes = gguf.build();
  const auto file =
      GgufFile::open(MappedFile::wrap({reinterpret_cast<const std::byte*>(bytes.data()), bytes.size()}, "x.gguf"));
  ASSERT_TRUE(file) << file.error().message;
  const auto tokens = file->metadata().find_strings("tokens");
  ASSERT_TRUE(tokens);
  const std::size_t begin = bytes.size() - (3 * 8 + 10);
  for (const char value : {'\0', '\xFF', '\x05'}) {
    std::fill(bytes.begin() + static_cast<std::ptrdiff_t>(begin), bytes.end(), value);
    std::size_t total = 0;
    for (const std::string_view token : **tokens) total += token.size();
    EXPECT_LE(total, 34U);
  }
}

}  // namespace
}  // namespace vernier
