// Typed reads of members of a JSON object, with errors that name the member. Internal to the tokenizer.json loader.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/json.h"
#include "base/result.h"

namespace vernier::text_internal {

/// A member that must be there; `where` names the object in messages ("normalizer").
Result<const Json*> required_field(const Json& object, std::string_view key, std::string_view where);
Result<std::string> string_field(const Json& object, std::string_view key, std::string_view where);
/// Absent or null: `fallback`.
Result<bool> bool_field(const Json& object, std::string_view key, bool fallback, std::string_view where);
Result<std::string> string_field_or(const Json& object, std::string_view key, std::string fallback,
                                    std::string_view where);
/// A member that must be an array.
Result<const JsonArray*> array_field(const Json& object, std::string_view key, std::string_view where);
/// An integer from `minimum` to `maximum`.
Result<std::int64_t> integer_field(const Json& object, std::string_view key, std::int64_t minimum, std::int64_t maximum,
                                   std::string_view where);

}  // namespace vernier::text_internal
