// Strings that `safe` or `escape` marked, as Jinja's Markup: joined with other text by + or %, or by their methods,
// they turn that text's <, >, &, ' and " into entities. Some public templates rely on it, perhaps unknowingly.
#pragma once

#include "chat/jinja/value.h"

namespace vernier::jinja {

[[nodiscard]] bool is_markup(const Value& value);
/// A string, or a list or tuple of strings, with the mark set; other values as they are.
[[nodiscard]] Result<Value> marked(Runtime& runtime, const Value& value);
/// str(value) with entities and the mark; marked strings as they are.
[[nodiscard]] Result<Value> escaped(Runtime& runtime, const Value& value);

/// A string method whose result is marked when the string is.
template <Builtin method>
Result<Value> keeps_mark(Runtime& runtime, const Value& self, const Args& args) {
  VN_ASSIGN(Value result, method(runtime, self, args));
  return is_markup(self) ? marked(runtime, result) : Result<Value>(std::move(result));
}

}  // namespace vernier::jinja
