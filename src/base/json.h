// JSON values and a bounded parser for untrusted text. Parsing is nlohmann-json's; limits, duplicate detection and the
// value type (insertion order kept, integers kept apart from floats) are ours. Writing: to_json_text().
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/result.h"

namespace vernier {

class Json;
using JsonArray = std::vector<Json>;

/// An object: members in the order of the text. find() is O(1) on large objects (an index is built by the parser).
class JsonObject {
 public:
  using Member = std::pair<std::string, Json>;
  JsonObject();
  ~JsonObject();
  JsonObject(const JsonObject&);
  JsonObject(JsonObject&&) noexcept;
  JsonObject& operator=(const JsonObject&);
  JsonObject& operator=(JsonObject&&) noexcept;

  [[nodiscard]] std::size_t size() const;
  [[nodiscard]] bool empty() const { return size() == 0; }
  [[nodiscard]] const Member* begin() const;
  [[nodiscard]] const Member* end() const;
  /// The member's value or null. The pointer lives until the object changes.
  [[nodiscard]] const Json* find(std::string_view key) const;
  [[nodiscard]] Json* find(std::string_view key);
  /// Sets or appends a member.
  Json& set(std::string key, Json value);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;  // null when empty
};

/// One JSON value. Integers outside both int64 and uint64 are parsed as doubles (is_double()).
class Json {
 public:
  Json() = default;
  Json(std::nullptr_t) {}
  Json(bool value) : value_(value) {}
  Json(int value) : value_(static_cast<std::int64_t>(value)) {}
  Json(std::int64_t value) : value_(value) {}
  Json(std::uint64_t value);
  Json(double value) : value_(value) {}
  Json(std::string value) : value_(std::move(value)) {}
  Json(std::string_view value) : value_(std::string(value)) {}
  Json(const char* value) : value_(std::string(value)) {}
  Json(JsonArray value) : value_(std::move(value)) {}
  Json(JsonObject value) : value_(std::move(value)) {}

  [[nodiscard]] bool is_null() const { return std::holds_alternative<std::monostate>(value_); }
  [[nodiscard]] bool is_bool() const { return std::holds_alternative<bool>(value_); }
  [[nodiscard]] bool is_integer() const { return std::holds_alternative<std::int64_t>(value_) || is_big_unsigned(); }
  [[nodiscard]] bool is_double() const { return std::holds_alternative<double>(value_); }
  [[nodiscard]] bool is_number() const { return is_integer() || is_double(); }
  [[nodiscard]] bool is_string() const { return std::holds_alternative<std::string>(value_); }
  [[nodiscard]] bool is_array() const { return std::holds_alternative<JsonArray>(value_); }
  [[nodiscard]] bool is_object() const { return std::holds_alternative<JsonObject>(value_); }
  /// True for integers above the int64 range; as_uint64() reads them.
  [[nodiscard]] bool is_big_unsigned() const { return std::holds_alternative<std::uint64_t>(value_); }

  // Unchecked reads: call only after the matching is_...().
  [[nodiscard]] bool as_bool() const { return std::get<bool>(value_); }
  [[nodiscard]] std::int64_t as_int64() const { return std::get<std::int64_t>(value_); }
  [[nodiscard]] std::uint64_t as_uint64() const;
  /// Any number as a double.
  [[nodiscard]] double as_double() const;
  [[nodiscard]] const std::string& as_string() const { return std::get<std::string>(value_); }
  [[nodiscard]] const JsonArray& as_array() const { return std::get<JsonArray>(value_); }
  [[nodiscard]] JsonArray& as_array() { return std::get<JsonArray>(value_); }
  [[nodiscard]] const JsonObject& as_object() const { return std::get<JsonObject>(value_); }
  [[nodiscard]] JsonObject& as_object() { return std::get<JsonObject>(value_); }

  /// Member `key` when this is an object that has it, else null.
  [[nodiscard]] const Json* find(std::string_view key) const;
  /// "null", "bool", "integer", "number", "string", "array" or "object": for messages.
  [[nodiscard]] std::string_view type_name() const;

 private:
  std::variant<std::monostate, bool, std::int64_t, std::uint64_t, double, std::string, JsonArray, JsonObject> value_;
};

struct JsonLimits {
  std::size_t max_depth = 64;
  std::size_t max_bytes = 512ULL << 20U;
};

/// Parses one JSON text (strict RFC 8259, UTF-8, no BOM, nothing behind it). Duplicate keys, deeper nesting than the
/// limit and non-finite numbers are errors. Messages carry the byte offset. Never recurses on the input's depth.
[[nodiscard]] Result<Json> parse_json(std::string_view text, const JsonLimits& limits = {});

/// Compact JSON text (no spaces); ill-formed UTF-8 in strings becomes U+FFFD; non-finite numbers become null.
/// Doubles are written shortest-round-trip. `indent` > 0 pretty-prints.
[[nodiscard]] std::string to_json_text(const Json& value, int indent = 0);

/// Appends `text` as a quoted JSON string.
void append_json_string(std::string& out, std::string_view text);

}  // namespace vernier
