// A pull reader of strict JSON for large headers of known structure: the caller asks for what must come next, nothing
// is built in between. For texts of unknown structure use parse_json() (json.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace vernier {

/// Reads one JSON text front to back. Every error is kCorrupt and carries the byte offset. Duplicate keys are the
/// caller's to find. Not thread-safe.
///
///     VN_TRY(reader.enter_object());
///     while (true) {
///       VN_ASSIGN(const bool more, reader.next_member(key));
///       if (!more) break;
///       VN_ASSIGN(const std::uint64_t value, reader.read_unsigned());
///     }
///     VN_TRY(reader.finish());
class JsonReader {
 public:
  static constexpr std::size_t kMaxDepth = 64;

  /// `text` must outlive the reader.
  explicit JsonReader(std::string_view text) : text_(text) {}

  /// Bytes read so far.
  [[nodiscard]] std::size_t offset() const { return at_; }

  [[nodiscard]] Status enter_object() { return enter('{', "an object"); }
  /// Reads the next member's key into `key`, or leaves the object and gives false. The value must be read next.
  [[nodiscard]] Result<bool> next_member(std::string& key);
  [[nodiscard]] Status enter_array() { return enter('[', "an array"); }
  /// True when an element follows, which must be read next; false after the array has been left.
  [[nodiscard]] Result<bool> next_element() { return next(']', "']'"); }

  /// Reads a string into `out` (escapes resolved, always well-formed UTF-8).
  [[nodiscard]] Status read_string(std::string& out);
  /// Reads an integer of digits alone: no sign, fraction or exponent.
  [[nodiscard]] Result<std::uint64_t> read_unsigned();
  /// Reads and forgets any value; nesting beyond kMaxDepth is an error.
  [[nodiscard]] Status skip_value();
  /// Errors unless only white space is left.
  [[nodiscard]] Status finish();

 private:
  [[nodiscard]] tl::unexpected<Error> unexpected(std::string_view expected) const;
  void skip_space();
  [[nodiscard]] Status enter(char open, std::string_view what);
  [[nodiscard]] Result<bool> next(char close, std::string_view what);
  [[nodiscard]] Status read_escape(std::string& out);
  [[nodiscard]] Result<unsigned> read_hex4();
  [[nodiscard]] Status skip_scalar();
  [[nodiscard]] Status skip_number();

  std::string_view text_;
  std::size_t at_ = 0;
  std::size_t depth_ = 0;
  // Bit d: the container at depth d + 1 has had an element, so the next one needs a comma.
  std::uint64_t had_element_ = 0;
};

}  // namespace vernier
