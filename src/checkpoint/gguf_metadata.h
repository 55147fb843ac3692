// The key-value section of a GGUF file. Keys and values are views into the mapped file: a vocabulary of 250,000 strings
// costs nothing until it is walked.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/mapped_file.h"
#include "base/result.h"
#include "checkpoint/container_options.h"

namespace vernier {

class ByteReader;

/// Value types of GGUF, with the ids of the file.
enum class GgufType : std::uint32_t {
  kU8 = 0,
  kI8 = 1,
  kU16 = 2,
  kI16 = 3,
  kU32 = 4,
  kI32 = 5,
  kF32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kU64 = 10,
  kI64 = 11,
  kF64 = 12,
};

/// "uint8", "string", ...; "array" for kArray.
[[nodiscard]] std::string_view gguf_type_name(GgufType type);

/// A validated run of length-prefixed strings, walked front to back:
/// `for (std::string_view token : strings) ...`. Strings may hold any bytes. Views live as long as the file.
class GgufStrings {
 public:
  class Iterator {
   public:
    using value_type = std::string_view;
    using difference_type = std::ptrdiff_t;
    using iterator_category = std::input_iterator_tag;
    Iterator(const std::byte* at, const std::byte* end, std::uint64_t left) : at_(at), end_(end), left_(left) {}
    [[nodiscard]] std::string_view operator*() const;
    Iterator& operator++();
    Iterator operator++(int) {
      Iterator before = *this;
      ++*this;
      return before;
    }
    bool operator==(const Iterator& other) const { return left_ == other.left_; }

   private:
    const std::byte* at_;
    const std::byte* end_;
    std::uint64_t left_;
  };

  GgufStrings() = default;
  GgufStrings(std::span<const std::byte> bytes, std::uint64_t count) : bytes_(bytes), count_(count) {}
  [[nodiscard]] std::uint64_t size() const { return count_; }
  [[nodiscard]] bool empty() const { return count_ == 0; }
  [[nodiscard]] Iterator begin() const { return {bytes_.data(), bytes_.data() + bytes_.size(), count_}; }
  [[nodiscard]] Iterator end() const { return {nullptr, nullptr, 0}; }
  /// All strings at once: 16 bytes each.
  [[nodiscard]] std::vector<std::string_view> views() const { return {begin(), end()}; }

 private:
  std::span<const std::byte> bytes_;
  std::uint64_t count_ = 0;
};

/// One key with its value.
struct GgufEntry {
  std::string_view key;  ///< well-formed UTF-8 without control characters
  GgufType type = GgufType::kU8;
  GgufType element_type = GgufType::kU8;  ///< of an array
  std::uint64_t count = 1;                ///< elements of an array
  /// A scalar's bytes, a string's text, or an array's packed elements.
  std::span<const std::byte> bytes;

  /// "uint32", "float32[]": for messages.
  [[nodiscard]] std::string type_text() const;
};

/// The keys of one file. find_...() give nothing when the key is absent and kCorrupt, naming key and both types, when
/// it has another type. Integers are read by value from any integer type, as writers disagree about widths. Safe to
/// read from any thread.
class GgufMetadata {
 public:
  /// Reads `count` entries from `reader` (which stands behind the file's header). Used by GgufFile.
  static Result<GgufMetadata> read(ByteReader& reader, std::uint64_t count, std::shared_ptr<const MappedFile> file,
                                   const ContainerLimits& limits);

  /// In the order of the file.
  [[nodiscard]] std::span<const GgufEntry> entries() const { return entries_; }
  /// The entry or null.
  [[nodiscard]] const GgufEntry* find(std::string_view key) const;

  [[nodiscard]] Result<std::optional<std::uint64_t>> find_u64(std::string_view key) const;
  [[nodiscard]] Result<std::optional<std::int64_t>> find_i64(std::string_view key) const;
  /// From float32 or float64.
  [[nodiscard]] Result<std::optional<double>> find_f64(std::string_view key) const;
  [[nodiscard]] Result<std::optional<float>> find_f32(std::string_view key) const;
  [[nodiscard]] Result<std::optional<bool>> find_bool(std::string_view key) const;
  [[nodiscard]] Result<std::optional<std::string_view>> find_string(std::string_view key) const;
  [[nodiscard]] Result<std::optional<GgufStrings>> find_strings(std::string_view key) const;
  /// An array of any integer type, by value; values above the int64 range are kCorrupt.
  [[nodiscard]] Result<std::optional<std::vector<std::int64_t>>> find_integers(std::string_view key) const;
  /// An array of float32.
  [[nodiscard]] Result<std::optional<std::vector<float>>> find_floats(std::string_view key) const;
  [[nodiscard]] Result<std::optional<std::vector<bool>>> find_bools(std::string_view key) const;

 private:
  [[nodiscard]] tl::unexpected<Error> wrong_type(const GgufEntry& entry, std::string_view expected) const;

  std::shared_ptr<const MappedFile> file_;
  std::vector<GgufEntry> entries_;
  std::vector<std::uint32_t> order_;  // positions in entries_, ascending by key
};

}  // namespace vernier
