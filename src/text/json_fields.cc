// See json_fields.h.
#include "text/json_fields.h"

#include <utility>

namespace vernier::text_internal {
namespace {

tl::unexpected<Error> wrong_type(const Json& value, std::string_view key, std::string_view wanted,
                                 std::string_view where) {
  return fail(ErrorCode::kCorrupt, "{}.{} is of type {}, expected {}", where, key, value.type_name(), wanted);
}

}  // namespace

Result<const Json*> required_field(const Json& object, std::string_view key, std::string_view where) {
  if (!object.is_object()) {
    return fail(ErrorCode::kCorrupt, "{} is of type {}, expected object", where, object.type_name());
  }
  const Json* value = object.find(key);
  if (value == nullptr) return fail(ErrorCode::kCorrupt, "{}.{} is missing", where, key);
  return value;
}

Result<std::string> string_field(const Json& object, std::string_view key, std::string_view where) {
  VN_ASSIGN(const Json* value, required_field(object, key, where));
  if (!value->is_string()) return wrong_type(*value, key, "string", where);
  return value->as_string();
}

Result<bool> bool_field(const Json& object, std::string_view key, bool fallback, std::string_view where) {
  const Json* value = object.find(key);
  if (value == nullptr || value->is_null()) return fallback;
  if (!value->is_bool()) return wrong_type(*value, key, "bool", where);
  return value->as_bool();
}

Result<std::string> string_field_or(const Json& object, std::string_view key, std::string fallback,
                                    std::string_view where) {
  const Json* value = object.find(key);
  if (value == nullptr || value->is_null()) return fallback;
  if (!value->is_string()) return wrong_type(*value, key, "string", where);
  return value->as_string();
}

Result<const JsonArray*> array_field(const Json& object, std::string_view key, std::string_view where) {
  VN_ASSIGN(const Json* value, required_field(object, key, where));
  if (!value->is_array()) return wrong_type(*value, key, "array", where);
  return &value->as_array();
}

Result<std::int64_t> integer_field(const Json& object, std::string_view key, std::int64_t minimum, std::int64_t maximum,
                                   std::string_view where) {
  VN_ASSIGN(const Json* value, required_field(object, key, where));
  if (!value->is_integer()) return wrong_type(*value, key, "integer", where);
  if (value->is_big_unsigned() || value->as_int64() < minimum || value->as_int64() > maximum) {
    return fail(ErrorCode::kCorrupt, "{}.{} is outside {} to {}", where, key, minimum, maximum);
  }
  return value->as_int64();
}

}  // namespace vernier::text_internal
