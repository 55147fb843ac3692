#include "chat/jinja/builtins.h"

#include <algorithm>

#include "chat/jinja/builders.h"
#include "chat/jinja/operators.h"
#include "chat/jinja/text_ops.h"
#include "chat/jinja/tokens.h"
#include "chat/jinja/value_text.h"

namespace vernier::jinja {

Builtin find_in(std::span<const BuiltinEntry> sorted, std::string_view name) {
  const auto found =
      std::lower_bound(sorted.begin(), sorted.end(), name,
                       [](const BuiltinEntry& entry, std::string_view key) { return entry.first < key; });
  return found != sorted.end() && found->first == name ? found->second : nullptr;
}

Result<Bound> bind(const Args& args, std::string_view what, std::initializer_list<std::string_view> names,
                   std::size_t required) {
  Bound bound;
  if (args.positional.size() > names.size()) {
    return error("{} takes at most {} arguments, {} given", what, names.size(), args.positional.size());
  }
  for (std::size_t i = 0; i < args.positional.size(); ++i) bound.values[i] = &args.positional[i];
  for (const auto& [key, value] : args.keyword) {
    const auto* const found = std::find(names.begin(), names.end(), key);
    if (found == names.end()) return error("{} got an unexpected keyword argument '{}'", what, escape(key));
    const auto at = static_cast<std::size_t>(found - names.begin());
    if (bound.values[at] != nullptr) return error("{} got multiple values for argument '{}'", what, escape(key));
    bound.values[at] = &value;
  }
  for (std::size_t i = 0; i < required; ++i) {
    if (bound.values[i] == nullptr) return error("{} needs the argument '{}'", what, names.begin()[i]);
  }
  return bound;
}

Result<std::string_view> string_argument(const Value* value, std::string_view fallback, std::string_view what) {
  if (value == nullptr) return fallback;
  if (value->is_undefined()) return error("{}", value->undefined_message());
  if (!value->is_string()) return error("{} must be str, not {}", what, type_name(*value));
  return std::string_view(value->text());
}

Result<std::int64_t> integer_argument(const Value* value, std::int64_t fallback, std::string_view what) {
  if (value == nullptr) return fallback;
  if (value->is_undefined()) return error("{}", value->undefined_message());
  if (!value->is_int()) return error("{} must be an integer, not {}", what, type_name(*value));
  return value->as_int();
}

Result<Value> to_string(Runtime& runtime, const Value& value) {
  if (value.is_string()) return value;
  TextBuilder text(runtime);
  VN_TRY(append_str(runtime, text, value));
  return text.finish();
}

Result<Value> attribute_path(Runtime& runtime, const Value& item, const Value& path) {
  if (!path.is_string()) return get_item(runtime, item, path);
  Value value = item;
  const std::string_view text = path.text();
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t end = std::min(text.find('.', at), text.size());
    const std::string_view part = text.substr(at, end - at);
    const bool digits = !part.empty() && part.size() < 18 && std::all_of(part.begin(), part.end(), is_ascii_digit);
    Value key;
    if (digits) {
      std::int64_t index = 0;
      for (const char digit : part) index = index * 10 + (digit - '0');
      key = Value::integer(index);
    } else {
      VN_ASSIGN(key, make_string(runtime, part));
    }
    VN_ASSIGN(value, get_item(runtime, value, key));
    at = end + 1;
  }
  return value;
}

}  // namespace vernier::jinja
