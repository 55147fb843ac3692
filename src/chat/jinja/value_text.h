// How values print: Python's str() and repr(), and json.dumps().
#pragma once

#include <string>

#include "chat/jinja/builders.h"

namespace vernier::jinja {

/// Shortest text that reads back as the same double, in Python's form: 1.0, 1e+16, inf.
[[nodiscard]] std::string float_text(double value);

/// Appends str(value) or repr(value). Errors only on an exhausted budget or on namespaces that hold themselves.
[[nodiscard]] Status append_str(Runtime& runtime, TextBuilder& out, const Value& value);
[[nodiscard]] Status append_repr(Runtime& runtime, TextBuilder& out, const Value& value);

/// The options of json.dumps().
struct JsonStyle {
  bool ensure_ascii = false;
  bool sort_keys = false;
  bool pretty = false;  // an indent was given, maybe an empty one
  std::string indent;   // of one level
  std::string item_separator = ", ";
  std::string key_separator = ": ";
};
[[nodiscard]] Status append_json(Runtime& runtime, TextBuilder& out, const Value& value, const JsonStyle& style);

}  // namespace vernier::jinja
