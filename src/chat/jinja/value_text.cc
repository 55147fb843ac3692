#include "chat/jinja/value_text.h"

#include <charconv>
#include <cmath>

#include "base/utf8.h"
#include "chat/jinja/node.h"
#include "chat/jinja/text_ops.h"

namespace vernier::jinja {
namespace {

void append_escaped(TextBuilder& out, char32_t c) {
  if (c < 0x100) {
    out.append(fmt::format("\\x{:02x}", static_cast<unsigned>(c)));
  } else if (c < 0x10000) {
    out.append(fmt::format("\\u{:04x}", static_cast<unsigned>(c)));
  } else {
    out.append(fmt::format("\\U{:08x}", static_cast<unsigned>(c)));
  }
}

/// Python quotes with ' unless the text holds one and no ".
void append_quoted(TextBuilder& out, std::string_view text) {
  const bool double_quotes = text.find('\'') != std::string_view::npos && text.find('"') == std::string_view::npos;
  const char32_t quote = double_quotes ? U'"' : U'\'';
  out.append_char(quote);
  for (std::size_t at = 0; at < text.size() && out.ok();) {
    const Utf8Char ch = decode_utf8(text, at);
    at += ch.size;
    const char32_t c = ch.code_point;
    if (c == quote || c == U'\\') {
      out.append_char(U'\\');
      out.append_char(c);
    } else if (c == U'\n') {
      out.append("\\n");
    } else if (c == U'\r') {
      out.append("\\r");
    } else if (c == U'\t') {
      out.append("\\t");
    } else if (is_printable(c)) {
      out.append_char(c);
    } else {
      append_escaped(out, c);
    }
  }
  out.append_char(quote);
}

class Printer {
 public:
  Printer(Runtime& runtime, TextBuilder& out) : runtime_(runtime), out_(out) {}

  Status repr(const Value& value) {
    VN_TRY(runtime_.budget.spend());
    VN_TRY(out_.status());
    switch (value.kind()) {
      case Kind::kUndefined: out_.append("Undefined"); break;
      case Kind::kNone: out_.append("None"); break;
      case Kind::kBool: out_.append(value.as_bool() ? "True" : "False"); break;
      case Kind::kInteger: out_.append(fmt::format("{}", value.as_int())); break;
      case Kind::kBigInteger: out_.append(fmt::format("{}", value.as_big())); break;
      case Kind::kFloat: out_.append(float_text(value.as_real())); break;
      case Kind::kString:
        if (value.string().markup) out_.append("Markup(");
        append_quoted(out_, value.text());
        if (value.string().markup) out_.append(")");
        break;
      default: return container(value);
    }
    return {};
  }

 private:
  Status container(const Value& value) {
    // Values are limited in depth when they are made; only namespaces can go round in circles.
    if (++level_ > 2 * runtime_.max_nesting()) return error("a namespace that holds itself can't be printed");
    switch (value.kind()) {
      case Kind::kSequence: VN_TRY(sequence(value.sequence())); break;
      case Kind::kDict: VN_TRY(dict(value.dict())); break;
      case Kind::kNamespace: VN_TRY(name_space(value.name_space())); break;
      case Kind::kMacro: out_.append(fmt::format("<Macro '{}'>", value.macro().node->name_text)); break;
      case Kind::kLoop: {
        const LoopObject& loop = value.loop();
        out_.append(fmt::format("<LoopContext {}/{}>", loop.index0 + 1, loop.items.sequence().items.size()));
        break;
      }
      default: out_.append(fmt::format("<{} object>", type_name(value)));
    }
    --level_;
    return {};
  }

  Status sequence(const SequenceObject& sequence) {
    if (sequence.type == SequenceType::kRange) {
      out_.append(sequence.label);
      return {};
    }
    const bool tuple = sequence.type == SequenceType::kTuple;
    const bool view = sequence.type >= SequenceType::kKeys;
    if (view) {
      static constexpr std::string_view kNames[] = {"dict_keys(", "dict_values(", "dict_items("};
      out_.append(kNames[static_cast<std::size_t>(sequence.type) - static_cast<std::size_t>(SequenceType::kKeys)]);
    }
    out_.append(tuple ? "(" : "[");
    bool first = true;
    for (const Value& item : sequence.items) {
      if (!first) out_.append(", ");
      first = false;
      VN_TRY(repr(item));
    }
    if (tuple && sequence.items.size() == 1) out_.append(",");
    out_.append(tuple ? ")" : "]");
    if (view) out_.append(")");
    return {};
  }

  Status dict(const DictObject& dict) {
    out_.append("{");
    bool first = true;
    for (const auto& [key, item] : dict.entries) {
      if (!first) out_.append(", ");
      first = false;
      VN_TRY(repr(key));
      out_.append(": ");
      VN_TRY(repr(item));
    }
    out_.append("}");
    return {};
  }

  Status name_space(const NamespaceObject& name_space) {
    out_.append("<Namespace {");
    bool first = true;
    for (const auto& [name, item] : name_space.members) {
      if (!first) out_.append(", ");
      first = false;
      append_quoted(out_, name);
      out_.append(": ");
      VN_TRY(repr(item));
    }
    out_.append("}>");
    return {};
  }

  Runtime& runtime_;
  TextBuilder& out_;
  std::size_t level_ = 0;
};

}  // namespace

std::string float_text(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  if (value == 0.0) return std::signbit(value) ? "-0.0" : "0.0";
  char buffer[40];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::scientific).ptr;
  // "-d.ddde+XX": take the digits and the exponent apart, then lay them out as Python's repr() does.
  std::string_view text(buffer, static_cast<std::size_t>(end - buffer));
  const bool negative = text.front() == '-';
  if (negative) text.remove_prefix(1);
  const std::size_t e = text.find('e');
  int exponent = 0;
  const std::size_t sign = text[e + 1] == '+' ? 2 : 1;
  std::from_chars(text.data() + e + sign, text.data() + text.size(), exponent);
  std::string digits(1, text[0]);
  if (e > 2) digits += text.substr(2, e - 2);
  const int count = static_cast<int>(digits.size());
  std::string out = negative ? "-" : "";
  if (exponent < -4 || exponent >= 16) {
    out += digits.substr(0, 1);
    if (count > 1) out += "." + digits.substr(1);
    return out + fmt::format("e{}{:02}", exponent < 0 ? '-' : '+', exponent < 0 ? -exponent : exponent);
  }
  if (exponent < 0) return out + "0." + std::string(static_cast<std::size_t>(-exponent - 1), '0') + digits;
  if (exponent >= count - 1)
    return out + digits + std::string(static_cast<std::size_t>(exponent - count + 1), '0') + ".0";
  const auto point = static_cast<std::size_t>(exponent) + 1;
  return out + digits.substr(0, point) + "." + digits.substr(point);
}

Status append_str(Runtime& runtime, TextBuilder& out, const Value& value) {
  if (value.is_string()) {
    out.append(value.text());
    return out.status();
  }
  if (value.is_undefined()) return {};
  VN_TRY(append_repr(runtime, out, value));
  return out.status();
}

Status append_repr(Runtime& runtime, TextBuilder& out, const Value& value) {
  VN_TRY(Printer(runtime, out).repr(value));
  return out.status();
}

}  // namespace vernier::jinja
