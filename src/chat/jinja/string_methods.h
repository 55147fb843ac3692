// The methods of strings by name.
#pragma once

#include <string_view>

#include "chat/jinja/builtins.h"

namespace vernier::jinja {

/// Null when strings have no such method here.
[[nodiscard]] Builtin find_string_method(std::string_view name);

// Those that take strings apart (split_methods.cc).
[[nodiscard]] Result<Value> split_left(Runtime& runtime, const Value& self, const Args& args);
[[nodiscard]] Result<Value> split_right(Runtime& runtime, const Value& self, const Args& args);
[[nodiscard]] Result<Value> split_into_lines(Runtime& runtime, const Value& self, const Args& args);
[[nodiscard]] Result<Value> partition_first(Runtime& runtime, const Value& self, const Args& args);
[[nodiscard]] Result<Value> partition_last(Runtime& runtime, const Value& self, const Args& args);

/// Byte position of the last occurrence of `needle`, or npos.
[[nodiscard]] Result<std::size_t> find_last(Runtime& runtime, std::string_view text, std::string_view needle);

/// text.replace(old, new, count); a negative count replaces all.
struct Replacement {
  std::string_view from;
  std::string_view to;
  std::int64_t count = -1;
};
[[nodiscard]] Result<Value> replace_text(Runtime& runtime, std::string_view text, const Replacement& replacement);

}  // namespace vernier::jinja
