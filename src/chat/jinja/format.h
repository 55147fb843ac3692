// Python's string formatting: the % operator and str.format().
#pragma once

#include "chat/jinja/value.h"

namespace vernier::jinja {

/// `format % values`, where `values` is a tuple, a dict or a single value.
[[nodiscard]] Result<Value> format_percent(Runtime& runtime, const Value& format, const Value& values);

/// format.format(*args): fields {}, {0}, {name}, {name.member[0]!r:>8.2f}.
[[nodiscard]] Result<Value> format_braces(Runtime& runtime, const Value& format, const Args& args);

}  // namespace vernier::jinja
