#include "checkpoint/safetensors.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "base/checked_math.h"
#include "base/json_reader.h"
#include "checkpoint/look_alike.h"
#include "checkpoint/name_check.h"
#include "checkpoint/safetensors_dtype.h"

namespace vernier {

/// Reads one file: length, JSON header, then checks that the tensors tile the data.
class SafetensorsReader {
 public:
  SafetensorsReader(std::shared_ptr<const MappedFile> file, std::span<const std::byte> bytes,
                    const OpenOptions& options)
      : options_(options), bytes_(bytes) {
    result_.file_ = std::move(file);
  }

  Result<SafetensorsFile> read() {
    VN_ASSIGN(const std::string_view header, find_header());
    JsonReader json(header);
    VN_TRY(json.enter_object());
    std::string name;
    bool seen_metadata = false;
    while (true) {
      VN_ASSIGN(const bool more, json.next_member(name));
      if (!more) break;
      if (name == "__metadata__") {
        if (seen_metadata) return fail(ErrorCode::kCorrupt, "duplicate key '__metadata__'");
        seen_metadata = true;
        VN_TRY(read_metadata(json));
        continue;
      }
      const std::size_t at = json.offset();
      auto record = read_tensor(json, name);
      if (!record) {
        return tl::unexpected(
            with_context(std::move(record).error(), fmt::format("tensor '{}' (JSON byte {})", escape(name), at)));
      }
      result_.tensors_.push_back(*std::move(record));
    }
    VN_TRY(json.finish());
    VN_TRY(TensorIndex::build(result_.tensors_));
    VN_TRY(check_tiling());
    return std::move(result_);
  }

 private:
  static constexpr std::uint64_t kLengthBytes = 8;
  static constexpr std::size_t kMaxWarnings = 16;

  Result<std::string_view> find_header() {
    if (bytes_.empty()) return fail(ErrorCode::kCorrupt, "empty file");
    if (bytes_.size() < kLengthBytes) {
      return fail(ErrorCode::kCorrupt, "too short for a header length: {} of {} bytes", bytes_.size(), kLengthBytes);
    }
    std::uint64_t length = 0;
    std::memcpy(&length, bytes_.data(), kLengthBytes);
    const std::uint64_t room = bytes_.size() - kLengthBytes;
    // Text and other magics read as a length of many gigabytes.
    if (length > room && length >> 32U != 0) {
      if (auto error = look_alike_error("a safetensors file", bytes_)) return tl::unexpected(*std::move(error));
    }
    if (length == 0) return fail(ErrorCode::kCorrupt, "header length is 0");
    if (length > room) {
      return fail(ErrorCode::kCorrupt, "header length {} exceeds the {} bytes that follow it: cut short?", length,
                  room);
    }
    if (length > options_.limits.safetensors_header_bytes) {
      return fail(ErrorCode::kCorrupt, "header length {} exceeds the limit of {}", length,
                  options_.limits.safetensors_header_bytes);
    }
    data_start_ = kLengthBytes + length;
    const std::string_view header(reinterpret_cast<const char*>(bytes_.data()) + kLengthBytes, length);
    if (header.front() != '{') {
      return fail(ErrorCode::kCorrupt, "the header must begin with '{{' at JSON byte 0, found '{}'",
                  escape(header.substr(0, 4)));
    }
    return header;
  }

  Status read_metadata(JsonReader& json) {
    VN_TRY(json.enter_object());
    std::string key;
    std::string value;
    while (true) {
      VN_ASSIGN(const bool more, json.next_member(key));
      if (!more) break;
      VN_TRY(json.read_string(value));
      result_.metadata_.emplace_back(key, value);
    }
    std::vector<std::string_view> keys;
    for (const auto& [name, text] : result_.metadata_) keys.push_back(name);
    std::sort(keys.begin(), keys.end());
    const auto twice = std::adjacent_find(keys.begin(), keys.end());
    if (twice == keys.end()) return {};
    return fail(ErrorCode::kCorrupt, "duplicate key '{}' in '__metadata__'", escape(*twice));
  }

  /// What an entry states, before it's checked.
  struct Entry {
    std::string dtype;
    bool has_dtype = false;
    std::vector<std::uint64_t> shape;
    bool has_shape = false;
    std::vector<std::uint64_t> offsets;
    bool has_offsets = false;
  };

  Result<TensorRecord> read_tensor(JsonReader& json, const std::string& name) {
    VN_TRY(check_tensor_name(name, options_.limits));
    Entry entry;
    VN_TRY(json.enter_object());
    while (true) {
      VN_ASSIGN(const bool more, json.next_member(key_));
      if (!more) break;
      VN_TRY(read_field(json, entry));
    }
    const char* missing = !entry.has_dtype ? "dtype" : !entry.has_shape ? "shape" : "data_offsets";
    if (!entry.has_dtype || !entry.has_shape || !entry.has_offsets) {
      return fail(ErrorCode::kCorrupt, "has no '{}'", missing);
    }
    return make_record(name, std::move(entry));
  }

  Status read_field(JsonReader& json, Entry& entry) {
    bool* seen = key_ == "dtype"          ? &entry.has_dtype
                 : key_ == "shape"        ? &entry.has_shape
                 : key_ == "data_offsets" ? &entry.has_offsets
                                          : nullptr;
    if (seen == nullptr) {
      if (!options_.lenient) {
        return fail_with_hint(ErrorCode::kCorrupt, "--lenient ignores it", "unknown field '{}'", escape(key_));
      }
      if (result_.warnings_.size() < kMaxWarnings) {
        result_.warnings_.push_back(fmt::format("{}: unknown field '{}' ignored", result_.file_->name(), escape(key_)));
      }
      return json.skip_value();
    }
    if (*seen) return fail(ErrorCode::kCorrupt, "duplicate key '{}'", key_);
    *seen = true;
    if (key_ == "dtype") return json.read_string(entry.dtype);
    if (key_ == "shape") return read_numbers(json, "shape", options_.limits.safetensors_dims, entry.shape);
    VN_TRY(read_numbers(json, "data_offsets", 2, entry.offsets));
    if (entry.offsets.size() == 2) return {};
    return fail(ErrorCode::kCorrupt, "data_offsets has {} entries, expected 2", entry.offsets.size());
  }

  static Status read_numbers(JsonReader& json, std::string_view what, std::uint64_t limit,
                             std::vector<std::uint64_t>& out) {
    VN_TRY(json.enter_array());
    while (true) {
      VN_ASSIGN(const bool more, json.next_element());
      if (!more) return {};
      if (out.size() == limit) {
        return fail(ErrorCode::kCorrupt, "{} has more than {} entries (JSON byte {})", what, limit, json.offset());
      }
      auto number = json.read_unsigned();
      if (!number) return tl::unexpected(with_context(std::move(number).error(), what));
      out.push_back(*number);
    }
  }

  Result<TensorRecord> make_record(const std::string& name, Entry entry) {
    const SafetensorsDtype* dtype = find_safetensors_dtype(entry.dtype);
    if (dtype == nullptr) return fail(ErrorCode::kCorrupt, "unknown dtype '{}'", escape(entry.dtype));
    const std::uint64_t begin = entry.offsets[0];
    const std::uint64_t end = entry.offsets[1];
    CheckedU64 bits = dtype->bits;
    for (const std::uint64_t dim : entry.shape) bits *= dim;
    if (!bits.value()) {
      return fail(ErrorCode::kCorrupt, "size overflows 64 bits: {} of {}", shape_text(entry.shape), dtype->name);
    }
    // Rows of sub-byte elements must not begin within a byte.
    const std::uint64_t row = entry.shape.empty() ? 1 : entry.shape.back();
    if (dtype->bits % 8 != 0 && row * dtype->bits % 8 != 0) {
      return fail(ErrorCode::kCorrupt, "a row of {} {} elements is not a whole number of bytes", row, dtype->name);
    }
    if (end < begin) return fail(ErrorCode::kCorrupt, "data_offsets [{}, {}] are reversed", begin, end);
    const std::uint64_t size = *bits.value() / 8;
    if (end - begin != size) {
      return fail(ErrorCode::kCorrupt, "data_offsets [{}, {}] hold {} bytes, but {} of {} needs {}", begin, end,
                  end - begin, shape_text(entry.shape), dtype->name, size);
    }
    const std::uint64_t data_size = bytes_.size() - data_start_;
    if (end > data_size) {
      return fail(ErrorCode::kCorrupt, "its data end at data byte {}, the file has {} (of {} bytes in all): cut short?",
                  end, data_size, bytes_.size());
    }
    TensorRecord record;
    record.name = name;
    record.shape = std::move(entry.shape);
    record.type_name = dtype->name;
    record.dtype = dtype->dtype;
    record.file = result_.file_;
    record.extent = {data_start_ + begin, size};
    return record;
  }

  /// Sorted by offset, each tensor must begin where the one before ends, up to the end of the file.
  Status check_tiling() {
    const auto& tensors = result_.tensors_;
    std::vector<std::uint32_t> order(tensors.size());
    std::iota(order.begin(), order.end(), 0U);
    const auto key = [&](std::uint32_t i) { return std::pair(tensors[i].extent.offset, tensors[i].extent.size); };
    std::sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) { return key(a) < key(b); });
    std::uint64_t covered = data_start_;
    const TensorRecord* before = nullptr;
    for (const std::uint32_t i : order) {
      const TensorRecord& record = tensors[i];
      const std::uint64_t begin = record.extent.offset;
      if (begin < covered) {
        return fail(ErrorCode::kCorrupt, "tensor '{}' at data byte {} overlaps tensor '{}', which ends at {}",
                    escape(record.name), begin - data_start_, escape(before->name), covered - data_start_);
      }
      if (begin > covered) {
        return fail(ErrorCode::kCorrupt, "hole of {} bytes before tensor '{}' at data byte {}", begin - covered,
                    escape(record.name), begin - data_start_);
      }
      covered = begin + record.extent.size;
      before = &record;
    }
    if (covered == bytes_.size()) return {};
    const std::string found =
        fmt::format("{} bytes of trailing garbage: the tensors end at byte {}, the file has {} bytes",
                    bytes_.size() - covered, covered, bytes_.size());
    if (!options_.lenient) return fail_with_hint(ErrorCode::kCorrupt, "--lenient ignores them", "{}", found);
    result_.warnings_.push_back(fmt::format("{}: {}", result_.file_->name(), found));
    return {};
  }

  const OpenOptions& options_;
  std::span<const std::byte> bytes_;
  std::uint64_t data_start_ = 0;
  SafetensorsFile result_;
  std::string key_;
};

Result<SafetensorsFile> SafetensorsFile::open(const std::filesystem::path& path, const OpenOptions& options) {
  VN_ASSIGN(auto file, MappedFile::open(path));
  return open(file, options);
}

Result<SafetensorsFile> SafetensorsFile::open(const std::shared_ptr<const MappedFile>& file,
                                              const OpenOptions& options) {
  VN_ASSIGN(const auto bytes, file->bytes({0, file->size()}));
  auto result = SafetensorsReader(file, bytes, options).read();
  if (!result) return tl::unexpected(with_context(std::move(result).error(), file->name()));
  return result;
}

}  // namespace vernier
