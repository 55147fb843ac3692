#include "model/config_reader.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>

namespace vernier {
namespace {

std::string integer_text(IntRange range) { return fmt::format("an integer in {}..{}", range.low, range.high); }
std::string number_text(NumberRange range) { return fmt::format("a number in {}..{}", range.low, range.high); }

}  // namespace

std::string describe_json(const Json& value) {
  if (value.is_string()) return fmt::format("the string \"{}\"", escape(value.as_string(), 64));
  if (value.is_array() || value.is_object()) return fmt::format("an {}", value.type_name());
  return escape(to_json_text(value), 64);
}

ConfigReader::ConfigReader(const Json& object, const std::string& key_prefix, Numbers numbers)
    : ConfigReader(&object, key_prefix, key_prefix, numbers, std::make_shared<std::optional<Error>>()) {
  if (!object.is_object()) refuse(ErrorCode::kCorrupt, "expected a JSON object, found {}", describe_json(object));
}

ConfigReader::ConfigReader(const Json* object, std::string prefix, std::string lookup_prefix, Numbers numbers,
                           std::shared_ptr<std::optional<Error>> error)
    : object_(object),
      prefix_(std::move(prefix)),
      lookup_prefix_(std::move(lookup_prefix)),
      numbers_(numbers),
      error_(std::move(error)) {}

const Json* ConfigReader::find(std::string_view key) const {
  if (object_ == nullptr) return nullptr;
  return object_->find(lookup_prefix_ + std::string(key));
}

bool ConfigReader::has(std::string_view key) const {
  const Json* value = find(key);
  return value != nullptr && !value->is_null();
}

std::int64_t ConfigReader::checked_integer(const Json& value, std::string_view name, IntRange range) {
  if (!value.is_integer()) {
    refuse(ErrorCode::kCorrupt, "{} must be {}, found {}", name, integer_text(range), describe_json(value));
    return range.low;
  }
  if (value.is_big_unsigned() || value.as_int64() < range.low || value.as_int64() > range.high) {
    refuse(ErrorCode::kCorrupt, "{} must be in {}..{}, found {}", name, range.low, range.high, describe_json(value));
    return range.low;
  }
  return value.as_int64();
}

double ConfigReader::checked_number(const Json& value, std::string_view name, NumberRange range) {
  const bool right_type = numbers_ == Numbers::kFloats ? value.is_double() : value.is_number();
  if (!right_type) {
    refuse(ErrorCode::kCorrupt, "{} must be {}, found {}", name, number_text(range), describe_json(value));
    return range.low;
  }
  const double number = value.as_double();
  if (!(number >= range.low && number <= range.high)) {  // also NaN
    refuse(ErrorCode::kCorrupt, "{} must be in {}..{}, found {}", name, range.low, range.high, number);
    return range.low;
  }
  return number;
}

bool ConfigReader::checked_flag(const Json& value, std::string_view name) {
  if (value.is_bool()) return value.as_bool();
  refuse(ErrorCode::kCorrupt, "{} must be true or false, found {}", name, describe_json(value));
  return false;
}

void ConfigReader::missing(std::string_view key, std::string_view expected) {
  refuse(ErrorCode::kCorrupt, "{} is missing, expected {}", name_of(key), expected);
}

std::int64_t ConfigReader::integer(std::string_view key, IntRange range) {
  const Json* value = find(key);
  if (value != nullptr) return checked_integer(*value, name_of(key), range);
  missing(key, integer_text(range));
  return range.low;
}

double ConfigReader::number(std::string_view key, NumberRange range) {
  const Json* value = find(key);
  if (value != nullptr) return checked_number(*value, name_of(key), range);
  missing(key, number_text(range));
  return range.low;
}

std::int64_t ConfigReader::integer_or(std::string_view key, IntRange range, std::int64_t fallback) {
  const Json* value = find(key);
  return value != nullptr ? checked_integer(*value, name_of(key), range) : fallback;
}

double ConfigReader::number_or(std::string_view key, NumberRange range, double fallback) {
  const Json* value = find(key);
  return value != nullptr ? checked_number(*value, name_of(key), range) : fallback;
}

bool ConfigReader::flag_or(std::string_view key, bool fallback) {
  const Json* value = find(key);
  return value != nullptr ? checked_flag(*value, name_of(key)) : fallback;
}

std::string ConfigReader::text_or(std::string_view key, std::string_view fallback) {
  const Json* value = find(key);
  if (value == nullptr) return std::string(fallback);
  if (value->is_string()) return value->as_string();
  refuse(ErrorCode::kCorrupt, "{} must be a string, found {}", name_of(key), describe_json(*value));
  return std::string(fallback);
}

std::optional<std::int64_t> ConfigReader::nullable_integer(std::string_view key, IntRange range) {
  return has(key) ? std::optional(integer(key, range)) : std::nullopt;
}

std::optional<double> ConfigReader::nullable_number(std::string_view key, NumberRange range) {
  return has(key) ? std::optional(number(key, range)) : std::nullopt;
}

std::optional<bool> ConfigReader::nullable_flag(std::string_view key) {
  return has(key) ? std::optional(flag_or(key, false)) : std::nullopt;
}

const JsonArray& ConfigReader::array(std::string_view key) {
  static const JsonArray kEmpty;
  const Json* value = find(key);
  if (value == nullptr || value->is_null()) return kEmpty;
  if (value->is_array()) return value->as_array();
  refuse(ErrorCode::kCorrupt, "{} must be an array, found {}", name_of(key), describe_json(*value));
  return kEmpty;
}

std::vector<std::int64_t> ConfigReader::integers(std::string_view key, IntRange range) {
  std::vector<std::int64_t> values;
  for (const Json& element : array(key)) {
    values.push_back(checked_integer(element, fmt::format("{}[{}]", name_of(key), values.size()), range));
  }
  return values;
}

std::vector<bool> ConfigReader::flags(std::string_view key) {
  std::vector<bool> values;
  for (const Json& element : array(key)) {
    values.push_back(checked_flag(element, fmt::format("{}[{}]", name_of(key), values.size())));
  }
  return values;
}

std::vector<std::string> ConfigReader::texts(std::string_view key) {
  std::vector<std::string> values;
  for (const Json& element : array(key)) {
    if (element.is_string()) {
      values.push_back(element.as_string());
      continue;
    }
    refuse(ErrorCode::kCorrupt, "{}[{}] must be a string, found {}", name_of(key), values.size(),
           describe_json(element));
    break;
  }
  return values;
}

std::vector<std::int64_t> ConfigReader::integer_or_integers(std::string_view key, IntRange range) {
  const Json* value = find(key);
  if (value != nullptr && !value->is_null() && !value->is_array()) return {integer(key, range)};
  return integers(key, range);
}

ConfigReader ConfigReader::section(std::string_view key) {
  const Json* value = find(key);
  if (value != nullptr && value->is_null()) value = nullptr;
  if (value != nullptr && !value->is_object()) {
    refuse(ErrorCode::kCorrupt, "{} must be an object, found {}", name_of(key), describe_json(*value));
    value = nullptr;
  }
  return {value, name_of(key) + ".", "", numbers_, error_};
}

void ConfigReader::refuse(Error error) {
  if (!error_->has_value()) *error_ = std::move(error);
}

Status ConfigReader::status() const {
  if (error_->has_value()) return tl::unexpected(**error_);
  return {};
}

}  // namespace vernier
