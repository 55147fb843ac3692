#include "checkpoint/gguf_metadata.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <numeric>

#include "base/checked_math.h"
#include "checkpoint/byte_reader.h"
#include "checkpoint/name_check.h"

namespace vernier {
namespace {

struct TypeRow {
  std::string_view name;
  std::uint64_t bytes;  // of one element; 0: not of fixed size
};
constexpr std::array<TypeRow, 13> kTypes = {{{"uint8", 1},
                                             {"int8", 1},
                                             {"uint16", 2},
                                             {"int16", 2},
                                             {"uint32", 4},
                                             {"int32", 4},
                                             {"float32", 4},
                                             {"bool", 1},
                                             {"string", 0},
                                             {"array", 0},
                                             {"uint64", 8},
                                             {"int64", 8},
                                             {"float64", 8}}};

const TypeRow& row_of(GgufType type) { return kTypes[static_cast<std::size_t>(type)]; }

bool is_integer(GgufType type) { return type <= GgufType::kI32 || type == GgufType::kU64 || type == GgufType::kI64; }

template <class T>
T load(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof(T));
  return value;
}

/// An integer of any type with its sign told apart from its magnitude, so that all of uint64 and int64 fit.
struct WideInteger {
  bool negative = false;
  std::uint64_t bits = 0;
};

WideInteger load_integer(GgufType type, const std::byte* at) {
  const auto from_signed = [](std::int64_t value) { return WideInteger{value < 0, static_cast<std::uint64_t>(value)}; };
  switch (type) {
    case GgufType::kU8: return {false, load<std::uint8_t>(at)};
    case GgufType::kI8: return from_signed(load<std::int8_t>(at));
    case GgufType::kU16: return {false, load<std::uint16_t>(at)};
    case GgufType::kI16: return from_signed(load<std::int16_t>(at));
    case GgufType::kU32: return {false, load<std::uint32_t>(at)};
    case GgufType::kI32: return from_signed(load<std::int32_t>(at));
    case GgufType::kU64: return {false, load<std::uint64_t>(at)};
    default: return from_signed(load<std::int64_t>(at));
  }
}

bool fits_int64(WideInteger value) {
  return value.negative || value.bits <= static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
}

std::string_view as_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// Reads the entries of one file, one after the other.
class EntryReader {
 public:
  EntryReader(ByteReader& reader, const ContainerLimits& limits) : reader_(reader), limits_(limits) {}

  Result<GgufEntry> read(std::uint64_t number) {
    GgufEntry entry;
    VN_TRY(read_key(entry, number));
    if (auto status = read_value(entry); !status) {
      return tl::unexpected(with_context(std::move(status).error(), fmt::format("key '{}'", escape(entry.key))));
    }
    return entry;
  }

 private:
  Status read_key(GgufEntry& entry, std::uint64_t number) {
    VN_ASSIGN(const auto length, reader_.read<std::uint64_t>(fmt::format("the length of key #{}", number)));
    const std::uint64_t at = reader_.position();
    if (length == 0) return fail(ErrorCode::kCorrupt, "key #{} is empty (at byte {})", number, at);
    if (length > reader_.remaining()) {
      return fail(ErrorCode::kCorrupt, "key #{} length {} exceeds remaining {} bytes (at byte {})", number, length,
                  reader_.remaining(), at);
    }
    if (length > limits_.gguf_key_bytes) {
      return fail(ErrorCode::kCorrupt, "key #{} length {} exceeds the limit of {} (at byte {})", number, length,
                  limits_.gguf_key_bytes, at);
    }
    VN_ASSIGN(const auto bytes, reader_.take(length, "a key"));
    entry.key = as_text(bytes);
    if (is_clean_text(entry.key)) return {};
    return fail(ErrorCode::kCorrupt, "key #{} '{}' holds a control character or ill-formed UTF-8 (at byte {})", number,
                escape(entry.key), at);
  }

  Result<GgufType> read_type(std::string_view what) {
    const std::uint64_t at = reader_.position();
    VN_ASSIGN(const auto id, reader_.read<std::uint32_t>(what));
    if (id >= kTypes.size()) {
      return fail(ErrorCode::kCorrupt, "{} {} at byte {} is unknown (known: 0 to {})", what,
                  static_cast<std::int32_t>(id), at, kTypes.size() - 1);
    }
    return static_cast<GgufType>(id);
  }

  Status read_value(GgufEntry& entry) {
    VN_ASSIGN(entry.type, read_type("value type"));
    if (entry.type == GgufType::kString) {
      VN_ASSIGN(entry.bytes, read_string());
      return {};
    }
    if (entry.type == GgufType::kArray) return read_array(entry);
    VN_ASSIGN(entry.bytes, reader_.take(row_of(entry.type).bytes, "the value"));
    return entry.type == GgufType::kBool ? check_bools(entry.bytes) : Status();
  }

  Result<std::span<const std::byte>> read_string() {
    VN_ASSIGN(const auto length, reader_.read<std::uint64_t>("a string's length"));
    if (length > reader_.remaining()) {
      return fail(ErrorCode::kCorrupt, "string length {} exceeds remaining {} bytes (at byte {})", length,
                  reader_.remaining(), reader_.position());
    }
    if (length > limits_.gguf_string_bytes) {
      return fail(ErrorCode::kCorrupt, "string length {} exceeds the limit of {}", length, limits_.gguf_string_bytes);
    }
    return reader_.take(length, "a string");
  }

  Status read_array(GgufEntry& entry) {
    const std::uint64_t at = reader_.position();
    VN_ASSIGN(entry.element_type, read_type("element type"));
    VN_ASSIGN(entry.count, reader_.read<std::uint64_t>("an array's length"));
    if (entry.element_type == GgufType::kArray) {
      return fail(ErrorCode::kCorrupt, "array of arrays at byte {}; only one level is allowed", at);
    }
    if (entry.count > limits_.gguf_array_elements) {
      return fail(ErrorCode::kCorrupt, "array of {} elements at byte {} exceeds the limit of {}", entry.count, at,
                  limits_.gguf_array_elements);
    }
    if (entry.element_type == GgufType::kString) {
      // Counts bytes as it walks, so that the view can be taken at the end.
      ByteReader start = reader_;
      for (std::uint64_t i = 0; i < entry.count; ++i) VN_TRY(read_string());
      VN_ASSIGN(entry.bytes, start.take(reader_.position() - start.position(), "an array"));
      return {};
    }
    const auto size = (CheckedU64(entry.count) * row_of(entry.element_type).bytes).value();
    if (!size || *size > reader_.remaining()) {
      return fail(ErrorCode::kCorrupt, "array of {} {} at byte {} exceeds remaining {} bytes", entry.count,
                  row_of(entry.element_type).name, at, reader_.remaining());
    }
    VN_ASSIGN(entry.bytes, reader_.take(*size, "an array"));
    return entry.element_type == GgufType::kBool ? check_bools(entry.bytes) : Status();
  }

  Status check_bools(std::span<const std::byte> bytes) const {
    const auto bad = std::find_if(bytes.begin(), bytes.end(), [](std::byte b) { return b > std::byte{1}; });
    if (bad == bytes.end()) return {};
    const auto from_end = static_cast<std::uint64_t>(bytes.end() - bad);
    return fail(ErrorCode::kCorrupt, "bool at byte {} is {}, expected 0 or 1", reader_.position() - from_end,
                static_cast<unsigned>(*bad));
  }

  ByteReader& reader_;
  const ContainerLimits& limits_;
};

}  // namespace

std::string_view gguf_type_name(GgufType type) { return row_of(type).name; }

std::string GgufEntry::type_text() const {
  return type == GgufType::kArray ? fmt::format("{}[]", gguf_type_name(element_type))
                                  : std::string(gguf_type_name(type));
}

// A string's length may have changed under us when someone truncates the file (its pages then read as zeros), so both
// reads stay within the array whatever it holds.
std::string_view GgufStrings::Iterator::operator*() const {
  const auto room = static_cast<std::uint64_t>(end_ - at_);
  if (room < sizeof(std::uint64_t)) return {};
  const auto length = std::min(load<std::uint64_t>(at_), room - sizeof(std::uint64_t));
  return {reinterpret_cast<const char*>(at_) + sizeof(std::uint64_t), length};
}

GgufStrings::Iterator& GgufStrings::Iterator::operator++() {
  const auto room = static_cast<std::uint64_t>(end_ - at_);
  at_ += std::min(sizeof(std::uint64_t) + (**this).size(), room);
  --left_;
  return *this;
}

Result<GgufMetadata> GgufMetadata::read(ByteReader& reader, std::uint64_t count, std::shared_ptr<const MappedFile> file,
                                        const ContainerLimits& limits) {
  constexpr std::uint64_t kSmallestEntry = 8 + 1 + 4 + 1;
  GgufMetadata metadata;
  metadata.file_ = std::move(file);
  metadata.entries_.reserve(std::min(count, reader.remaining() / kSmallestEntry));
  EntryReader entries(reader, limits);
  for (std::uint64_t i = 0; i < count; ++i) {
    VN_ASSIGN(GgufEntry entry, entries.read(i));
    metadata.entries_.push_back(entry);
  }
  auto& order = metadata.order_;
  order.resize(metadata.entries_.size());
  std::iota(order.begin(), order.end(), 0U);
  const auto key = [&](std::uint32_t i) { return metadata.entries_[i].key; };
  // Sorted rather than hashed: keys chosen to collide must not make this slow.
  std::sort(order.begin(), order.end(),
            [&](std::uint32_t a, std::uint32_t b) { return key(a) != key(b) ? key(a) < key(b) : a < b; });
  for (std::size_t i = 1; i < order.size(); ++i) {
    if (key(order[i - 1]) != key(order[i])) continue;
    return fail(ErrorCode::kCorrupt, "duplicate key '{}' (#{}, #{})", escape(key(order[i])), order[i - 1], order[i]);
  }
  return metadata;
}

const GgufEntry* GgufMetadata::find(std::string_view key) const {
  const auto at = std::lower_bound(order_.begin(), order_.end(), key,
                                   [&](std::uint32_t i, std::string_view wanted) { return entries_[i].key < wanted; });
  return at != order_.end() && entries_[*at].key == key ? &entries_[*at] : nullptr;
}

tl::unexpected<Error> GgufMetadata::wrong_type(const GgufEntry& entry, std::string_view expected) const {
  return fail(ErrorCode::kCorrupt, "{}: key '{}': expected {}, found {}", file_->name(), escape(entry.key), expected,
              entry.type_text());
}

Result<std::optional<std::uint64_t>> GgufMetadata::find_u64(std::string_view key) const {
  const GgufEntry* entry = find(key);
  if (entry == nullptr) return std::nullopt;
  if (!is_integer(entry->type)) return wrong_type(*entry, "an integer");
  const WideInteger value = load_integer(entry->type, entry->bytes.data());
  if (value.negative) {
    return fail(ErrorCode::kCorrupt, "{}: key '{}': expected a non-negative integer, found {}", file_->name(),
                escape(key), static_cast<std::int64_t>(value.bits));
  }
  return value.bits;
}

Result<std::optional<std::int64_t>> GgufMetadata::find_i64(std::string_view key) const {
  const GgufEntry* entry = find(key);
  if (entry == nullptr) return std::nullopt;
  if (!is_integer(entry->type)) return wrong_type(*entry, "an integer");
  const WideInteger value = load_integer(entry->type, entry->bytes.data());
  if (!fits_int64(value)) {
    return fail(ErrorCode::kCorrupt, "{}: key '{}': {} exceeds the int64 range", file_->name(), escape(key),
                value.bits);
  }
  return static_cast<std::int64_t>(value.bits);
}

Result<std::optional<double>> GgufMetadata::find_f64(std::string_view key) const {
  const GgufEntry* entry = find(key);
  if (entry == nullptr) return std::nullopt;
  if (entry->type == GgufType::kF32) return load<float>(entry->bytes.data());
  if (entry->type == GgufType::kF64) return load<double>(entry->bytes.data());
  return wrong_type(*entry, "float32");
}

Result<std::optional<float>> GgufMetadata::find_f32(std::string_view key) const {
  VN_ASSIGN(const auto value, find_f64(key));
  return value ? std::optional(static_cast<float>(*value)) : std::nullopt;
}

Result<std::optional<bool>> GgufMetadata::find_bool(std::string_view key) const {
  const GgufEntry* entry = find(key);
  if (entry == nullptr) return std::nullopt;
  if (entry->type != GgufType::kBool) return wrong_type(*entry, "bool");
  return entry->bytes[0] != std::byte{0};
}

Result<std::optional<std::string_view>> GgufMetadata::find_string(std::string_view key) const {
  const GgufEntry* entry = find(key);
  if (entry == nullptr) return std::nullopt;
  if (entry->type != GgufType::kString) return wrong_type(*entry, "string");
  return as_text(entry->bytes);
}

Result<std::optional<GgufStrings>> GgufMetadata::find_strings(std::string_view key) const {
  const GgufEntry* entry = find(key);
  if (entry == nullptr) return std::nullopt;
  if (entry->type != GgufType::kArray || entry->element_type != GgufType::kString) {
    return wrong_type(*entry, "string[]");
  }
  return GgufStrings(entry->bytes, entry->count);
}

Result<std::optional<std::vector<std::int64_t>>> GgufMetadata::find_integers(std::string_view key) const {
  const GgufEntry* entry = find(key);
  if (entry == nullptr) return std::nullopt;
  if (entry->type != GgufType::kArray || !is_integer(entry->element_type)) {
    return wrong_type(*entry, "an array of integers");
  }
  const std::uint64_t step = row_of(entry->element_type).bytes;
  std::vector<std::int64_t> values(entry->count);
  for (std::uint64_t i = 0; i < entry->count; ++i) {
    const WideInteger value = load_integer(entry->element_type, entry->bytes.data() + i * step);
    if (!fits_int64(value)) {
      return fail(ErrorCode::kCorrupt, "{}: key '{}': element {} is {}, which exceeds the int64 range", file_->name(),
                  escape(key), i, value.bits);
    }
    values[i] = static_cast<std::int64_t>(value.bits);
  }
  return values;
}

Result<std::optional<std::vector<float>>> GgufMetadata::find_floats(std::string_view key) const {
  const GgufEntry* entry = find(key);
  if (entry == nullptr) return std::nullopt;
  if (entry->type != GgufType::kArray || entry->element_type != GgufType::kF32) return wrong_type(*entry, "float32[]");
  std::vector<float> values(entry->count);
  if (!values.empty()) std::memcpy(values.data(), entry->bytes.data(), entry->bytes.size());
  return values;
}

Result<std::optional<std::vector<bool>>> GgufMetadata::find_bools(std::string_view key) const {
  const GgufEntry* entry = find(key);
  if (entry == nullptr) return std::nullopt;
  if (entry->type != GgufType::kArray || entry->element_type != GgufType::kBool) return wrong_type(*entry, "bool[]");
  std::vector<bool> values(entry->count);
  for (std::uint64_t i = 0; i < entry->count; ++i) values[i] = entry->bytes[i] != std::byte{0};
  return values;
}

}  // namespace vernier
