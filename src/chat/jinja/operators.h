// Python's operators on template values: comparison, arithmetic, membership, subscripts and slices.
#pragma once

#include <cstdint>

#include "chat/jinja/value.h"

namespace vernier::jinja {

enum class ArithmeticOp : std::uint8_t { kAdd, kSubtract, kMultiply, kDivide, kFloorDivide, kModulo, kPower };
enum class CompareOp : std::uint8_t { kEqual, kNotEqual, kLess, kLessEqual, kGreater, kGreaterEqual, kIn, kNotIn };

[[nodiscard]] Result<Value> arithmetic(Runtime& runtime, ArithmeticOp op, const Value& left, const Value& right);
[[nodiscard]] Result<Value> negate(const Value& value);

[[nodiscard]] Result<bool> equal(Runtime& runtime, const Value& left, const Value& right);
/// left < right; an error where Python has no order.
[[nodiscard]] Result<bool> less(Runtime& runtime, const Value& left, const Value& right);
[[nodiscard]] Result<bool> compare(Runtime& runtime, CompareOp op, const Value& left, const Value& right);
/// `item in container`
[[nodiscard]] Result<bool> contains(Runtime& runtime, const Value& container, const Value& item);

/// len(); an error for values without a length.
[[nodiscard]] Result<std::int64_t> length(const Value& value);

/// `object.name`: methods first, then members; undefined when there is neither.
[[nodiscard]] Result<Value> get_attribute(Runtime& runtime, const Value& object, std::string_view name);
/// `object[key]`: items first, then attributes; undefined when there is neither.
[[nodiscard]] Result<Value> get_item(Runtime& runtime, const Value& object, const Value& key);
/// `object[start:stop:step]`; the bounds are integers or none.
struct SliceBounds {
  Value start, stop, step;
};
[[nodiscard]] Result<Value> get_slice(Runtime& runtime, const Value& object, const SliceBounds& bounds);

/// The method of a value, or null: in methods.cc and string_methods.cc.
[[nodiscard]] Builtin find_method(const Value& object, std::string_view name);
/// True for Python's methods that would change a list or dict, which the sandbox refuses.
[[nodiscard]] bool is_mutating_method(const Value& object, std::string_view name);

}  // namespace vernier::jinja
