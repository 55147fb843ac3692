// Filters that work on single values: text, numbers, JSON. Those for sequences are in sequence_filters.cc.
#include <charconv>
#include <cmath>

#include "base/utf8.h"
#include "chat/jinja/builders.h"
#include "chat/jinja/builtins.h"
#include "chat/jinja/format.h"
#include "chat/jinja/markup.h"
#include "chat/jinja/operators.h"
#include "chat/jinja/string_methods.h"
#include "chat/jinja/text_ops.h"
#include "chat/jinja/tokens.h"
#include "chat/jinja/value_text.h"

namespace vernier::jinja {
namespace {

// --- text ------------------------------------------------------------------------------------------------------------

Result<Value> string_filter(Runtime& runtime, const Value& self, const Args& args) {
  VN_TRY(bind(args, "string", {}));
  return to_string(runtime, self);
}

/// A filter that is a method of str(value).
Result<Value> string_method(Runtime& runtime, const Value& self, const Args& args, std::string_view method) {
  VN_ASSIGN(const Value text, to_string(runtime, self));
  return find_string_method(method)(runtime, text, args);
}

Result<Value> upper(Runtime& runtime, const Value& self, const Args& args) {
  return string_method(runtime, self, args, "upper");
}
Result<Value> lower(Runtime& runtime, const Value& self, const Args& args) {
  return string_method(runtime, self, args, "lower");
}
Result<Value> capitalize(Runtime& runtime, const Value& self, const Args& args) {
  return string_method(runtime, self, args, "capitalize");
}
Result<Value> trim(Runtime& runtime, const Value& self, const Args& args) {
  return string_method(runtime, self, args, "strip");
}

Result<Value> center(Runtime& runtime, const Value& self, const Args& args) {
  VN_ASSIGN(const Bound bound, bind(args, "center", {"width"}));
  Args padded;
  padded.positional.push_back(bound[0] != nullptr ? *bound[0] : Value::integer(80));
  return string_method(runtime, self, padded, "center");
}

/// The filter's title case, unlike the method's, begins words only after white space and opening brackets.
Result<Value> title(Runtime& runtime, const Value& self, const Args& args) {
  VN_TRY(bind(args, "title", {}));
  VN_ASSIGN(const Value text, to_string(runtime, self));
  VN_TRY(runtime.budget.spend_text(4 * text.text().size()));
  std::string mapped;
  TextBuilder out(runtime);
  bool first = true;
  for (std::size_t at = 0; at < text.text().size() && out.ok();) {
    const Utf8Char ch = decode_utf8(text.text(), at);
    at += ch.size;
    mapped.clear();
    first ? append_upper(mapped, ch.code_point) : append_lower(mapped, ch.code_point);
    out.append(mapped);
    first =
        is_space(ch.code_point) ||
        (ch.code_point < 0x80 && std::string_view("-({[<").find(static_cast<char>(ch.code_point)) != std::string::npos);
  }
  return out.finish();
}

Result<Value> replace_filter(Runtime& runtime, const Value& self, const Args& args) {
  VN_ASSIGN(const Bound bound, bind(args, "replace", {"old", "new", "count"}, 2));
  VN_ASSIGN(const Value text, to_string(runtime, self));
  VN_ASSIGN(const Value from, to_string(runtime, *bound[0]));
  VN_ASSIGN(const Value to, to_string(runtime, *bound[1]));
  Replacement replacement{from.text(), to.text(), -1};
  if (bound[2] != nullptr && !bound[2]->is_none()) {
    VN_ASSIGN(replacement.count, integer_argument(bound[2], -1, "replace count"));
  }
  return replace_text(runtime, text.text(), replacement);
}

Result<Value> indent(Runtime& runtime, const Value& self, const Args& args) {
  VN_ASSIGN(const Bound bound, bind(args, "indent", {"width", "first", "blank"}));
  if (!self.is_string()) return error("indent needs a string, not {}", type_name(self));
  TextBuilder margin(runtime);
  if (bound[0] != nullptr && bound[0]->is_string()) {
    margin.append(bound[0]->text());
  } else {
    VN_ASSIGN(const std::int64_t width, integer_argument(bound[0], 4, "width"));
    margin.append_repeated(" ", width > 0 ? static_cast<std::size_t>(width) : 0);
  }
  VN_TRY(margin.status());
  const bool first_too = bound.flag(1);
  const bool blank_too = bound.flag(2);
  VN_TRY(runtime.budget.spend_text(4 * self.text().size()));
  Charge scratch;
  VN_TRY(scratch.grow(runtime.budget, self.text().size() + 1));
  TextBuilder out(runtime);
  bool first = true;
  // As in Jinja, an added line end keeps a last empty line.
  for_each_line(self.text() + "\n", false, [&](std::string_view line) {
    if (!first) out.append("\n");
    const bool wanted = first ? first_too : (blank_too || !line.empty());
    if (wanted) out.append(margin.text());
    out.append(line);
    first = false;
  });
  return out.finish();
}

Result<Value> format_filter(Runtime& runtime, const Value& self, const Args& args) {
  VN_ASSIGN(const Value text, to_string(runtime, self));
  if (!args.keyword.empty()) {
    if (!args.positional.empty()) return error("can't handle positional and keyword arguments at the same time");
    DictBuilder dict(runtime);
    for (const auto& [name, value] : args.keyword) dict.set_string(name, value);
    VN_ASSIGN(const Value values, dict.finish());
    return format_percent(runtime, text, values);
  }
  ListBuilder list(runtime, SequenceType::kTuple);
  for (const Value& value : args.positional) list.push(value);
  VN_ASSIGN(const Value values, list.finish());
  return format_percent(runtime, text, values);
}

Result<Value> truncate(Runtime& runtime, const Value& self, const Args& args) {
  VN_ASSIGN(const Bound bound, bind(args, "truncate", {"length", "killwords", "end", "leeway"}));
  if (!self.is_string()) return error("truncate needs a string, not {}", type_name(self));
  VN_ASSIGN(const std::int64_t length, integer_argument(bound[0], 255, "length"));
  VN_ASSIGN(const std::string_view end, string_argument(bound[2], "...", "end"));
  VN_ASSIGN(const std::int64_t leeway, integer_argument(bound[3], 5, "leeway"));
  const auto end_length = static_cast<std::int64_t>(count_code_points(end));
  if (length < end_length || leeway < 0) return error("truncate: the length is below that of its end");
  const auto size = static_cast<std::int64_t>(self.string().length);
  if (size <= length || size - length <= leeway) return self;
  std::string_view kept = self.text();
  kept = kept.substr(0, byte_offset(kept, static_cast<std::size_t>(length - end_length)));
  if (!bound.flag(1)) kept = kept.substr(0, kept.rfind(' '));
  VN_ASSIGN(const Value head, make_string(runtime, kept));
  VN_ASSIGN(const Value tail, make_string(runtime, end));
  VN_ASSIGN(const Value marked_head, is_markup(self) ? marked(runtime, head) : Result<Value>(head));
  return arithmetic(runtime, ArithmeticOp::kAdd, marked_head, tail);
}

Result<Value> word_count(Runtime& runtime, const Value& self, const Args& args) {
  VN_TRY(bind(args, "wordcount", {}));
  VN_ASSIGN(const Value text, to_string(runtime, self));
  VN_TRY(runtime.budget.spend_text(4 * text.text().size()));
  std::int64_t words = 0;
  bool inside = false;
  for (std::size_t at = 0; at < text.text().size();) {
    const Utf8Char ch = decode_utf8(text.text(), at);
    const bool letter = ch.code_point == U'_' || is_alphabetic(ch.code_point) || is_digit(ch.code_point);
    if (letter && !inside) ++words;
    inside = letter;
    at += ch.size;
  }
  return Value::integer(words);
}

Result<Value> safe(Runtime& runtime, const Value& self, const Args& args) {
  VN_TRY(bind(args, "safe", {}));
  VN_ASSIGN(const Value text, to_string(runtime, self));
  return marked(runtime, text);
}

Result<Value> escape_filter(Runtime& runtime, const Value& self, const Args& args) {
  VN_TRY(bind(args, "escape", {}));
  return escaped(runtime, self);
}

/// Escapes marked text too.
Result<Value> force_escape(Runtime& runtime, const Value& self, const Args& args) {
  VN_TRY(bind(args, "forceescape", {}));
  VN_ASSIGN(const Value text, to_string(runtime, self));
  VN_ASSIGN(const Value plain, make_string(runtime, text.text()));
  return escaped(runtime, plain);
}

// --- JSON ------------------------------------------------------------------------------------------------------------

Status read_separators(const Value& separators, JsonStyle& style) {
  if (separators.is_none()) return {};
  if (!separators.is(Kind::kSequence) || separators.sequence().items.size() != 2) {
    return error("separators must be a pair of strings");
  }
  VN_ASSIGN(style.item_separator, string_argument(&separators.sequence().items[0], {}, "item separator"));
  VN_ASSIGN(style.key_separator, string_argument(&separators.sequence().items[1], {}, "key separator"));
  return {};
}

/// json.dumps() as transformers calls it: not HTML-safe, non-ASCII characters kept.
Result<Value> to_json(Runtime& runtime, const Value& self, const Args& args) {
  VN_ASSIGN(const Bound bound, bind(args, "tojson", {"ensure_ascii", "indent", "separators", "sort_keys"}));
  JsonStyle style;
  style.ensure_ascii = bound.flag(0);
  style.sort_keys = bound.flag(3);
  if (bound[1] != nullptr && !bound[1]->is_none()) {
    style.pretty = true;
    style.item_separator = ",";
    if (bound[1]->is_string()) {
      style.indent = bound[1]->text();
    } else {
      VN_ASSIGN(const std::int64_t width, integer_argument(bound[1], 0, "indent"));
      constexpr std::int64_t kMaxIndent = 256;
      if (width > kMaxIndent) return error("indent {} is above {}", width, kMaxIndent);
      style.indent.assign(width > 0 ? static_cast<std::size_t>(width) : 0, ' ');
    }
  }
  if (bound[2] != nullptr) VN_TRY(read_separators(*bound[2], style));
  TextBuilder out(runtime);
  VN_TRY(append_json(runtime, out, self, style));
  return out.finish();
}

// --- numbers ---------------------------------------------------------------------------------------------------------

/// Python's float() of a text, or nothing.
std::optional<double> parse_real(std::string_view text) {
  text = strip(text, nullptr, {});
  std::string digits;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool between = i > 0 && i + 1 < text.size() && is_ascii_digit(text[i - 1]) && is_ascii_digit(text[i + 1]);
    if (text[i] == '_' && between) continue;
    digits.push_back(text[i]);
  }
  const char* begin = digits.c_str();
  if (*begin == '+') ++begin;
  if (*begin == '+' || (begin != digits.c_str() && *begin == '-')) return std::nullopt;
  double value = 0.0;
  const char* const end = digits.c_str() + digits.size();
  const auto [stop, problem] = std::from_chars(begin, end, value);
  if (stop != end || begin == end) return std::nullopt;
  if (problem == std::errc::result_out_of_range) return std::strtod(begin, nullptr);
  return problem == std::errc() ? std::optional(value) : std::nullopt;
}

/// Python's int() of a text, or nothing.
std::optional<std::int64_t> parse_integer(std::string_view text, int base) {
  text = strip(text, nullptr, {});
  const bool negative = text.starts_with('-');
  if (negative || text.starts_with('+')) text.remove_prefix(1);
  if (text.size() > 2 && text[0] == '0') {
    const char kind = static_cast<char>(text[1] | 0x20);
    if ((base == 16 && kind == 'x') || (base == 8 && kind == 'o') || (base == 2 && kind == 'b')) text.remove_prefix(2);
  }
  std::string digits = negative ? "-" : "";
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '_' && i > 0 && i + 1 < text.size() && text[i - 1] != '_') continue;
    if (text[i] == '-') return std::nullopt;
    digits.push_back(text[i]);
  }
  std::int64_t value = 0;
  const auto [stop, problem] = std::from_chars(digits.data(), digits.data() + digits.size(), value, base);
  const bool whole = problem == std::errc() && stop == digits.data() + digits.size();
  return whole ? std::optional(value) : std::nullopt;
}

std::optional<std::int64_t> truncated(double value) {
  if (!(std::fabs(value) < 0x1p63)) return std::nullopt;
  return static_cast<std::int64_t>(value);
}

Result<Value> int_filter(Runtime& runtime, const Value& self, const Args& args) {
  VN_ASSIGN(const Bound bound, bind(args, "int", {"default", "base"}));
  VN_ASSIGN(const std::int64_t base, integer_argument(bound[1], 10, "base"));
  if (base < 2 || base > 36) return error("int base must be between 2 and 36");
  if (self.is_undefined()) return error("{}", self.undefined_message());
  std::optional<std::int64_t> value;
  if (self.is_string()) {
    VN_TRY(runtime.budget.spend_text(self.text().size()));
    value = parse_integer(self.text(), static_cast<int>(base));
    if (!value) {
      if (const auto real = parse_real(self.text())) value = truncated(*real);
    }
  } else if (self.is_int()) {
    value = self.as_int();
  } else if (self.is(Kind::kBigInteger)) {
    return self;
  } else if (self.is(Kind::kFloat)) {
    value = truncated(self.as_real());
  }
  if (value) return Value::integer(*value);
  return bound[0] != nullptr ? *bound[0] : Value::integer(0);
}

Result<Value> float_filter(Runtime& runtime, const Value& self, const Args& args) {
  VN_ASSIGN(const Bound bound, bind(args, "float", {"default"}));
  if (self.is_undefined()) return error("{}", self.undefined_message());
  if (self.is_number()) return Value::real(self.as_real());
  if (self.is_string()) {
    VN_TRY(runtime.budget.spend_text(self.text().size()));
    if (const auto value = parse_real(self.text())) return Value::real(*value);
  }
  return bound[0] != nullptr ? *bound[0] : Value::real(0.0);
}

Result<Value> abs_filter(Runtime&, const Value& self, const Args& args) {
  VN_TRY(bind(args, "abs", {}));
  if (self.is(Kind::kFloat)) return Value::real(std::fabs(self.as_real()));
  if (self.is(Kind::kBigInteger)) return self;
  if (self.is_int() && self.as_int() >= 0) return Value::integer(self.as_int());
  return negate(self);
}

Result<Value> round_filter(Runtime&, const Value& self, const Args& args) {
  VN_ASSIGN(const Bound bound, bind(args, "round", {"precision", "method"}));
  VN_ASSIGN(const std::int64_t precision, integer_argument(bound[0], 0, "precision"));
  VN_ASSIGN(const std::string_view method, string_argument(bound[1], "common", "method"));
  if (!self.is_number()) return error("round needs a number, not {}", type_name(self));
  if (precision < -300 || precision > 300) return error("round: precision {} is out of range", precision);
  if (self.is_int() && precision >= 0 && method == "common") return Value::integer(self.as_int());
  const double value = self.as_real();
  if (method == "common") {
    if (!std::isfinite(value) || precision > 17) return Value::real(value);
    if (precision < 0) {
      const double scale = std::pow(10.0, static_cast<double>(-precision));
      return Value::real(std::nearbyint(value / scale) * scale);
    }
    // Printing rounds the exact binary value half to even, which is what Python does.
    return Value::real(std::strtod(fmt::format("{:.{}f}", value, precision).c_str(), nullptr));
  }
  if (method != "ceil" && method != "floor") return error("method must be common, ceil or floor");
  const double scale = std::pow(10.0, static_cast<double>(precision));
  return Value::real((method == "ceil" ? std::ceil(value * scale) : std::floor(value * scale)) / scale);
}

// --- others ----------------------------------------------------------------------------------------------------------

Result<Value> default_filter(Runtime&, const Value& self, const Args& args) {
  VN_ASSIGN(const Bound bound, bind(args, "default", {"default_value", "boolean"}));
  const bool replaced = self.is_undefined() || (bound.flag(1) && !truth(self));
  if (!replaced) return self;
  static const Value kEmpty = make_constant("");
  return bound[0] != nullptr ? *bound[0] : kEmpty;
}

Result<Value> attr(Runtime& runtime, const Value& self, const Args& args) {
  VN_ASSIGN(const Bound bound, bind(args, "attr", {"name"}, 1));
  VN_ASSIGN(const std::string_view name, string_argument(bound[0], {}, "name"));
  if (self.is(Kind::kDict) && find_method(self, name) == nullptr) {
    return make_undefined(runtime, fmt::format("'dict object' has no attribute '{}'", escape(name)));
  }
  return get_attribute(runtime, self, name);
}

Result<Value> length_filter(Runtime&, const Value& self, const Args& args) {
  VN_TRY(bind(args, "length", {}));
  VN_ASSIGN(const std::int64_t size, length(self));
  return Value::integer(size);
}

constexpr BuiltinEntry kFilters[] = {
    {"abs", abs_filter},
    {"attr", attr},
    {"capitalize", capitalize},
    {"center", center},
    {"count", length_filter},
    {"d", default_filter},
    {"default", default_filter},
    {"e", escape_filter},
    {"escape", escape_filter},
    {"float", float_filter},
    {"forceescape", force_escape},
    {"format", format_filter},
    {"indent", keeps_mark<indent>},
    {"int", int_filter},
    {"length", length_filter},
    {"lower", lower},
    {"replace", replace_filter},
    {"round", round_filter},
    {"safe", safe},
    {"string", string_filter},
    {"title", title},
    {"tojson", to_json},
    {"trim", trim},
    {"truncate", truncate},
    {"upper", upper},
    {"wordcount", word_count},
};

}  // namespace

Builtin find_filter(std::string_view name) {
  const Builtin found = find_in(kFilters, name);
  return found != nullptr ? found : find_sequence_filter(name);
}

}  // namespace vernier::jinja
