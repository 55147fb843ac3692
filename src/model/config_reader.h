// Strict reading of hyper-parameters from a JSON object (config.json, or a GGUF file's keys as one object): exact
// types, ranges, and messages that name the key as the file spells it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace vernier {

/// Inclusive.
struct IntRange {
  std::int64_t low = 0;
  std::int64_t high = 0;
};
struct NumberRange {
  double low = 0.0;
  double high = 0.0;
};

/// The reads below remember the first error instead of returning it and then give a value within the range, so that a
/// family's reading code is a plain list; `status()` at the end tells whether all went well. Readers of sections share
/// the memory of their parent. The JSON outlives the reader.
class ConfigReader {
 public:
  enum class Numbers : std::uint8_t {
    kAny,    ///< JSON: 10000 is as good a number as 10000.0
    kFloats  ///< GGUF: a float key is a float
  };
  /// `key_prefix` stands before every key, in the object and in messages ("llama."). Anything but an object is an
  /// error.
  explicit ConfigReader(const Json& object, const std::string& key_prefix = {}, Numbers numbers = Numbers::kAny);

  /// True when the key is there and not null.
  [[nodiscard]] bool has(std::string_view key) const;
  /// The value whatever its type, or null when absent.
  [[nodiscard]] const Json* find(std::string_view key) const;

  // Required values: absent and null are errors.
  [[nodiscard]] std::int64_t integer(std::string_view key, IntRange range);
  [[nodiscard]] double number(std::string_view key, NumberRange range);
  // Absent gives the fallback; null is an error.
  [[nodiscard]] std::int64_t integer_or(std::string_view key, IntRange range, std::int64_t fallback);
  [[nodiscard]] double number_or(std::string_view key, NumberRange range, double fallback);
  [[nodiscard]] bool flag_or(std::string_view key, bool fallback);
  [[nodiscard]] std::string text_or(std::string_view key, std::string_view fallback);
  // Absent and null give nothing.
  [[nodiscard]] std::optional<std::int64_t> nullable_integer(std::string_view key, IntRange range);
  [[nodiscard]] std::optional<double> nullable_number(std::string_view key, NumberRange range);
  [[nodiscard]] std::optional<bool> nullable_flag(std::string_view key);

  // Arrays; absent gives an empty one. Elements are checked like single values, and named "key[3]" in messages.
  [[nodiscard]] std::vector<std::int64_t> integers(std::string_view key, IntRange range);
  [[nodiscard]] std::vector<bool> flags(std::string_view key);
  [[nodiscard]] std::vector<std::string> texts(std::string_view key);
  /// As integers(), and a single integer counts as an array of one.
  [[nodiscard]] std::vector<std::int64_t> integer_or_integers(std::string_view key, IntRange range);

  /// The object under `key`; absent or null gives a reader that finds nothing.
  [[nodiscard]] ConfigReader section(std::string_view key);

  /// Remembers an error that the caller found, unless there is one already.
  void refuse(Error error);
  template <class... Args>
  void refuse(ErrorCode code, fmt::format_string<Args...> format, Args&&... args) {
    refuse(Error{code, fmt::format(format, std::forward<Args>(args)...), {}});
  }
  /// The key as messages show it.
  [[nodiscard]] std::string name_of(std::string_view key) const { return prefix_ + std::string(key); }
  [[nodiscard]] Status status() const;

 private:
  ConfigReader(const Json* object, std::string prefix, std::string lookup_prefix, Numbers numbers,
               std::shared_ptr<std::optional<Error>> error);

  [[nodiscard]] std::int64_t checked_integer(const Json& value, std::string_view name, IntRange range);
  [[nodiscard]] double checked_number(const Json& value, std::string_view name, NumberRange range);
  [[nodiscard]] bool checked_flag(const Json& value, std::string_view name);
  /// The array's elements, or an empty list; remembers an error for other types.
  [[nodiscard]] const JsonArray& array(std::string_view key);
  void missing(std::string_view key, std::string_view expected);

  const Json* object_;
  std::string prefix_;         // before keys in messages
  std::string lookup_prefix_;  // before keys in the object
  Numbers numbers_;
  std::shared_ptr<std::optional<Error>> error_;
};

/// A JSON value for messages: its type and, for scalars, the value itself, escaped and cut.
[[nodiscard]] std::string describe_json(const Json& value);

}  // namespace vernier
