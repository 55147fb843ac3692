// Values as json.dumps() writes them.
#include <cmath>

#include "base/utf8.h"
#include "chat/jinja/operators.h"
#include "chat/jinja/sorting.h"
#include "chat/jinja/value_text.h"

namespace vernier::jinja {
namespace {

class JsonPrinter {
 public:
  JsonPrinter(Runtime& runtime, TextBuilder& out, const JsonStyle& style)
      : runtime_(runtime), out_(out), style_(style) {}

  /// Values are limited in depth when they are made, and namespaces are refused, so recursion is bounded.
  Status write(const Value& value) {
    VN_TRY(runtime_.budget.spend());
    VN_TRY(out_.status());
    switch (value.kind()) {
      case Kind::kNone: out_.append("null"); return {};
      case Kind::kBool:
      case Kind::kInteger:
      case Kind::kBigInteger:
      case Kind::kFloat: out_.append(number(value)); return {};
      case Kind::kString: string(value.text()); return {};
      case Kind::kDict: return dict(value.dict());
      case Kind::kSequence:
        if (value.sequence().type <= SequenceType::kTuple) return sequence(value.sequence());
        [[fallthrough]];
      default: return error("Object of type {} is not JSON serializable", type_name(value));
    }
  }

 private:
  static std::string number(const Value& value) {
    if (value.is(Kind::kBool)) return value.as_bool() ? "true" : "false";
    if (value.is(Kind::kInteger)) return fmt::format("{}", value.as_int());
    if (value.is(Kind::kBigInteger)) return fmt::format("{}", value.as_big());
    const double real = value.as_real();
    if (std::isnan(real)) return "NaN";
    if (std::isinf(real)) return real < 0 ? "-Infinity" : "Infinity";
    return float_text(real);
  }

  void unicode_escape(char32_t c) {
    if (c >= 0x10000) {
      unicode_escape(0xD800 + ((c - 0x10000) >> 10U));
      unicode_escape(0xDC00 + ((c - 0x10000) & 0x3FFU));
      return;
    }
    out_.append(fmt::format("\\u{:04x}", static_cast<unsigned>(c)));
  }

  void string(std::string_view text) {
    static constexpr std::string_view kPlain = "\"\\\n\r\t\b\f";
    static constexpr std::string_view kLetters = "\"\\nrtbf";
    out_.append("\"");
    for (std::size_t at = 0; at < text.size() && out_.ok();) {
      const Utf8Char ch = decode_utf8(text, at);
      at += ch.size;
      const char32_t c = ch.code_point;
      const std::size_t short_form = c < 0x80 ? kPlain.find(static_cast<char>(c)) : std::string_view::npos;
      if (short_form != std::string_view::npos) {
        out_.append("\\");
        out_.append(kLetters.substr(short_form, 1));
      } else if (c < 0x20 || (style_.ensure_ascii && c >= 0x7F)) {
        unicode_escape(c);
      } else {
        out_.append_char(c);
      }
    }
    out_.append("\"");
  }

  void new_line() {
    if (!style_.pretty) return;
    out_.append("\n");
    out_.append_repeated(style_.indent, level_);
  }

  Status sequence(const SequenceObject& sequence) {
    if (sequence.items.empty()) {
      out_.append("[]");
      return {};
    }
    out_.append("[");
    ++level_;
    bool first = true;
    for (const Value& item : sequence.items) {
      if (!first) out_.append(style_.item_separator);
      first = false;
      new_line();
      VN_TRY(write(item));
    }
    --level_;
    new_line();
    out_.append("]");
    return {};
  }

  Status key(const Value& key) {
    if (key.is_string()) {
      string(key.text());
    } else if (key.is_none()) {
      out_.append("\"null\"");
    } else if (key.is_number()) {
      out_.append("\"");
      out_.append(number(key));
      out_.append("\"");
    } else {
      return error("keys must be str, int, float, bool or None, not {}", type_name(key));
    }
    return {};
  }

  Status entry(const DictObject::Entry& entry, bool first) {
    if (!first) out_.append(style_.item_separator);
    new_line();
    VN_TRY(key(entry.first));
    out_.append(style_.key_separator);
    return write(entry.second);
  }

  Status dict(const DictObject& dict) {
    if (dict.entries.empty()) {
      out_.append("{}");
      return {};
    }
    std::vector<const DictObject::Entry*> order;
    Charge scratch;
    VN_TRY(scratch.grow(runtime_.budget, 2 * dict.entries.size() * sizeof(void*)));
    for (const auto& item : dict.entries) order.push_back(&item);
    if (style_.sort_keys) VN_TRY(sort(order));
    out_.append("{");
    ++level_;
    for (std::size_t i = 0; i < order.size(); ++i) VN_TRY(entry(*order[i], i == 0));
    --level_;
    new_line();
    out_.append("}");
    return {};
  }

  Status sort(std::vector<const DictObject::Entry*>& order) {
    return sort_checked(order, [&](const auto* a, const auto* b) { return less(runtime_, a->first, b->first); });
  }

  Runtime& runtime_;
  TextBuilder& out_;
  const JsonStyle& style_;
  std::size_t level_ = 0;
};

}  // namespace

Status append_json(Runtime& runtime, TextBuilder& out, const Value& value, const JsonStyle& style) {
  VN_TRY(JsonPrinter(runtime, out, style).write(value));
  return out.status();
}

}  // namespace vernier::jinja
