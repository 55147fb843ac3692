// The built-in filters, tests and functions by name, and how they read their arguments.
#pragma once

#include <array>
#include <initializer_list>
#include <span>
#include <string_view>
#include <utility>

#include "chat/jinja/value.h"

namespace vernier::jinja {

/// Null when there is none of this name.
[[nodiscard]] Builtin find_filter(std::string_view name);
[[nodiscard]] Builtin find_test(std::string_view name);
[[nodiscard]] Builtin find_function(std::string_view name);

/// One row of a table of built-ins, sorted by name.
using BuiltinEntry = std::pair<std::string_view, Builtin>;
[[nodiscard]] Builtin find_in(std::span<const BuiltinEntry> sorted, std::string_view name);

/// The filters that work on sequences (sequence_filters.cc); the rest are in filters.cc.
[[nodiscard]] Builtin find_sequence_filter(std::string_view name);

/// Arguments matched to parameter names.
struct Bound {
  static constexpr std::size_t kMax = 6;
  std::array<const Value*, kMax> values{};
  /// The argument, or null where it was left out.
  const Value* operator[](std::size_t index) const { return values[index]; }
  [[nodiscard]] bool flag(std::size_t index, bool fallback = false) const {
    return values[index] == nullptr ? fallback : truth(*values[index]);
  }
};
/// Matches `args` with `names`, the first `required` of which must be there. `what` names the callee in errors.
[[nodiscard]] Result<Bound> bind(const Args& args, std::string_view what, std::initializer_list<std::string_view> names,
                                 std::size_t required = 0);

/// An argument that must be a string, or an integer; `fallback` where it was left out.
[[nodiscard]] Result<std::string_view> string_argument(const Value* value, std::string_view fallback,
                                                       std::string_view what);
[[nodiscard]] Result<std::int64_t> integer_argument(const Value* value, std::int64_t fallback, std::string_view what);

/// Python's str() of a value; strings as they are.
[[nodiscard]] Result<Value> to_string(Runtime& runtime, const Value& value);

/// Looks up "a.b.0" or an integer, step by step, as the filters' `attribute` does.
[[nodiscard]] Result<Value> attribute_path(Runtime& runtime, const Value& item, const Value& path);

}  // namespace vernier::jinja
