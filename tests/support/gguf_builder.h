// Builds GGUF files for tests, right ones and - field by field - wrong ones.
//
//     GgufBuilder gguf;
//     gguf.string("general.architecture", "llama").u32("llama.block_count", 2);
//     gguf.f32_tensor("blk.0.attn_norm.weight", {4}, {1, 1, 1, 1});
//     gguf.tensor("blk.0.attn_q.weight", {64, 2}, 8, q8_0_bytes);      // dims in GGUF's order: innermost first
//     auto file = GgufFile::open(gguf.file("x.gguf"));
//
// A wrong file: change a TensorInfo after adding it (`gguf.tensor(...).offset = 7`), override the counts of the header,
// or append raw bytes as a key's value (`raw_kv`).
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "support/bytes.h"

namespace vernier::test {

class GgufBuilder {
 public:
  /// One tensor as its info will be written. `offset` and the data are filled in by build() unless set here.
  struct TensorInfo {
    std::string name;
    std::vector<std::int64_t> dims;  ///< innermost first
    std::optional<std::uint32_t> num_dims;
    std::uint32_t type = 0;
    std::optional<std::uint64_t> offset;
    std::optional<std::uint64_t> name_length;
    std::string data;
  };

  // The header's fields, free to be made wrong.
  std::string magic = "GGUF";
  std::uint32_t version = 3;
  std::optional<std::int64_t> num_tensors;
  std::optional<std::int64_t> num_keys;
  /// Used for laying out the data. Doesn't write general.alignment: add the key.
  std::uint64_t alignment = 32;
  /// Pad behind the last tensor, as most writers do.
  bool pad_end = true;

  // Keys. `u32("a", 1)` and so on; arrays by `array<T>`.
  GgufBuilder& u8(std::string_view key, std::uint8_t value) { return number(key, 0, value); }
  GgufBuilder& i8(std::string_view key, std::int8_t value) { return number(key, 1, value); }
  GgufBuilder& u16(std::string_view key, std::uint16_t value) { return number(key, 2, value); }
  GgufBuilder& i16(std::string_view key, std::int16_t value) { return number(key, 3, value); }
  GgufBuilder& u32(std::string_view key, std::uint32_t value) { return number(key, 4, value); }
  GgufBuilder& i32(std::string_view key, std::int32_t value) { return number(key, 5, value); }
  GgufBuilder& f32(std::string_view key, float value) { return number(key, 6, value); }
  GgufBuilder& boolean(std::string_view key, bool value) { return number(key, 7, static_cast<std::uint8_t>(value)); }
  GgufBuilder& u64(std::string_view key, std::uint64_t value) { return number(key, 10, value); }
  GgufBuilder& i64(std::string_view key, std::int64_t value) { return number(key, 11, value); }
  GgufBuilder& f64(std::string_view key, double value) { return number(key, 12, value); }
  GgufBuilder& string(std::string_view key, std::string_view value) {
    std::string bytes;
    append_string(bytes, value);
    return raw_kv(key, 8, bytes);
  }
  GgufBuilder& strings(std::string_view key, const std::vector<std::string>& values) {
    std::string bytes;
    for (const std::string& value : values) append_string(bytes, value);
    return raw_array(key, 8, values.size(), bytes);
  }
  GgufBuilder& f32_array(std::string_view key, const std::vector<float>& values) { return array(key, 6, values); }
  GgufBuilder& i32_array(std::string_view key, const std::vector<std::int32_t>& values) {
    return array(key, 5, values);
  }
  GgufBuilder& u8_array(std::string_view key, const std::vector<std::uint8_t>& values) { return array(key, 0, values); }
  GgufBuilder& i64_array(std::string_view key, const std::vector<std::int64_t>& values) {
    return array(key, 11, values);
  }
  GgufBuilder& bool_array(std::string_view key, const std::vector<std::uint8_t>& values) {
    return array(key, 7, values);
  }
  /// An array of `count` elements of type `element_type` whose packed bytes are `bytes`.
  GgufBuilder& raw_array(std::string_view key, std::uint32_t element_type, std::uint64_t count,
                         std::string_view bytes) {
    std::string value;
    append_number(value, element_type);
    append_number(value, count);
    value += bytes;
    return raw_kv(key, 9, value);
  }
  /// A key with any type id and any bytes as value.
  GgufBuilder& raw_kv(std::string_view key, std::uint32_t type, std::string_view value) {
    append_string(keys_, key);
    append_number(keys_, type);
    keys_ += value;
    ++key_count_;
    return *this;
  }
  /// Bytes in the place of a whole key (with a wrong length, say). Counts as one key.
  GgufBuilder& raw_key_bytes(std::string_view bytes) {
    keys_ += bytes;
    ++key_count_;
    return *this;
  }

  /// Adds a tensor with these data bytes. The reference stays good and lets a test make the info wrong.
  TensorInfo& tensor(std::string_view name, std::vector<std::int64_t> dims, std::uint32_t type, std::string data) {
    tensors_.push_back({std::string(name), std::move(dims), {}, type, {}, {}, std::move(data)});
    return tensors_.back();
  }
  TensorInfo& f32_tensor(std::string_view name, std::vector<std::int64_t> dims, const std::vector<float>& values) {
    return tensor(name, std::move(dims), 0, bytes_of(std::span(values)));
  }

  /// The file's bytes. `header_size`, if given, is set to the bytes before the padding of the data.
  [[nodiscard]] std::string build(std::size_t* header_size = nullptr) const {
    std::string out = magic;
    append_number(out, version);
    append_number(out, num_tensors.value_or(static_cast<std::int64_t>(tensors_.size())));
    append_number(out, num_keys.value_or(static_cast<std::int64_t>(key_count_)));
    out += keys_;
    std::uint64_t offset = 0;
    for (const TensorInfo& info : tensors_) {
      append_number(out, info.name_length.value_or(info.name.size()));
      out += info.name;
      append_number(out, info.num_dims.value_or(static_cast<std::uint32_t>(info.dims.size())));
      for (const std::int64_t dim : info.dims) append_number(out, dim);
      append_number(out, info.type);
      append_number(out, info.offset.value_or(offset));
      offset = aligned(offset + info.data.size());
    }
    if (header_size != nullptr) *header_size = out.size();
    if (tensors_.empty()) return out;
    out.resize(aligned(out.size()));
    for (std::size_t i = 0; i < tensors_.size(); ++i) {
      out += tensors_[i].data;
      if (pad_end || i + 1 < tensors_.size()) out.resize(aligned(out.size()));
    }
    return out;
  }
  [[nodiscard]] std::shared_ptr<const MappedFile> file(std::string name = "test.gguf") const {
    return as_file(build(), std::move(name));
  }
  void save(const std::filesystem::path& path) const { test::save(path, build()); }

  static void append_string(std::string& out, std::string_view text) {
    append_number(out, static_cast<std::uint64_t>(text.size()));
    out += text;
  }

 private:
  template <class T>
  GgufBuilder& number(std::string_view key, std::uint32_t type, T value) {
    std::string bytes;
    append_number(bytes, value);
    return raw_kv(key, type, bytes);
  }
  template <class T>
  GgufBuilder& array(std::string_view key, std::uint32_t element_type, const std::vector<T>& values) {
    return raw_array(key, element_type, values.size(), bytes_of(std::span(values)));
  }
  [[nodiscard]] std::uint64_t aligned(std::uint64_t size) const {
    return (size + alignment - 1) / alignment * alignment;
  }

  std::string keys_;
  std::size_t key_count_ = 0;
  std::deque<TensorInfo> tensors_;  // references stay good
};

}  // namespace vernier::test
