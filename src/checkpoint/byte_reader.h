// Reads a binary header front to back: little-endian numbers and byte runs, never beyond the end.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

#include "base/result.h"

namespace vernier {

static_assert(std::endian::native == std::endian::little, "containers are read in place, as little-endian");

/// See the top of the file. Not thread-safe; the bytes must outlive it.
class ByteReader {
 public:
  explicit ByteReader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  [[nodiscard]] std::uint64_t position() const { return at_; }
  [[nodiscard]] std::uint64_t remaining() const { return bytes_.size() - at_; }

  /// The next `size` bytes, or kCorrupt naming `what`.
  [[nodiscard]] Result<std::span<const std::byte>> take(std::uint64_t size, std::string_view what) {
    if (size > remaining()) return cut_short(size, what);
    const auto taken = bytes_.subspan(at_, size);
    at_ += size;
    return taken;
  }

  /// The next number of type T, or kCorrupt naming `what`.
  template <class T>
  [[nodiscard]] Result<T> read(std::string_view what) {
    if (sizeof(T) > remaining()) return cut_short(sizeof(T), what);
    T value;
    std::memcpy(&value, bytes_.data() + at_, sizeof(T));
    at_ += sizeof(T);
    return value;
  }

 private:
  [[nodiscard]] tl::unexpected<Error> cut_short(std::uint64_t size, std::string_view what) const {
    return fail(ErrorCode::kCorrupt, "the header is cut short: {} needs {} bytes at byte {}, the file has {} bytes",
                what, size, at_, bytes_.size());
  }

  std::span<const std::byte> bytes_;
  std::uint64_t at_ = 0;
};

}  // namespace vernier
