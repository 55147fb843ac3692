#include "chat/jinja/format.h"

#include <cmath>

#include "base/utf8.h"
#include "chat/jinja/builtins.h"
#include "chat/jinja/format_spec.h"
#include "chat/jinja/markup.h"
#include "chat/jinja/operators.h"
#include "chat/jinja/text_ops.h"
#include "chat/jinja/tokens.h"
#include "chat/jinja/value_text.h"

namespace vernier::jinja {
namespace {

// --- % ---------------------------------------------------------------------------------------------------------------

class PercentFormatter {
 public:
  PercentFormatter(Runtime& runtime, const Value& format, const Value& values)
      : runtime_(runtime), format_(format.text()), markup_(is_markup(format)), values_(values), out_(runtime) {
    is_tuple_ = values.is(Kind::kSequence) && values.sequence().type == SequenceType::kTuple;
  }

  Result<Value> run() {
    while (at_ < format_.size()) {
      const std::size_t percent = std::min(format_.find('%', at_), format_.size());
      out_.append(std::string_view(format_).substr(at_, percent - at_));
      at_ = percent;
      if (at_ < format_.size()) VN_TRY(field());
    }
    const bool all_used = is_tuple_ ? next_ == values_.sequence().items.size() : next_ == 1;
    if (!all_used && !values_.is(Kind::kDict)) return error("not all arguments converted during string formatting");
    VN_ASSIGN(const Value text, out_.finish());
    return markup_ ? marked(runtime_, text) : text;
  }

 private:
  Result<Value> next_value() {
    if (is_tuple_) {
      if (next_ >= values_.sequence().items.size()) return error("not enough arguments for format string");
      return values_.sequence().items[next_++];
    }
    if (next_++ > 0) return error("not enough arguments for format string");
    return values_;
  }

  /// A width or precision: digits, or `*` for an argument.
  Result<std::optional<std::int64_t>> size(std::size_t limit) {
    if (at_ < format_.size() && format_[at_] == '*') {
      ++at_;
      VN_ASSIGN(const Value value, next_value());
      if (!value.is_int()) return error("* wants int");
      if (value.as_int() > static_cast<std::int64_t>(limit) || value.as_int() < -static_cast<std::int64_t>(limit)) {
        return error("a format's width or precision is above {}", limit);
      }
      return std::optional(value.as_int());
    }
    VN_ASSIGN(const auto digits, read_size(format_, at_, limit));
    return digits ? std::optional(static_cast<std::int64_t>(*digits)) : std::nullopt;
  }

  Result<std::optional<Value>> mapped_value() {
    if (at_ >= format_.size() || format_[at_] != '(') return std::optional<Value>();
    const std::size_t close = format_.find(')', at_);
    if (close == std::string::npos) return error("incomplete format key");
    if (!values_.is(Kind::kDict)) return error("format requires a mapping");
    const std::string_view key = std::string_view(format_).substr(at_ + 1, close - at_ - 1);
    const Value* found = values_.dict().find(key);
    if (found == nullptr) return error("format key '{}' is missing", escape(key));
    at_ = close + 1;
    return std::optional(*found);
  }

  Status field() {
    ++at_;  // the percent sign
    VN_TRY(runtime_.budget.spend());
    VN_ASSIGN(std::optional<Value> value, mapped_value());
    FormatSpec spec;
    bool zero = false;
    for (; at_ < format_.size(); ++at_) {
      const char flag = format_[at_];
      if (flag == '-') {
        spec.align = '<';
      } else if (flag == '+' || (flag == ' ' && spec.sign != '+')) {
        spec.sign = flag;
      } else if (flag == '0') {
        zero = true;
      } else if (flag == '#') {
        spec.alternate = true;
      } else if (flag != ' ') {
        break;
      }
    }
    VN_ASSIGN(const std::optional<std::int64_t> width, size(kMaxFormatWidth));
    if (width && *width < 0) spec.align = '<';
    spec.width = static_cast<std::size_t>(std::abs(width.value_or(0)));
    if (at_ < format_.size() && format_[at_] == '.') {
      ++at_;
      VN_ASSIGN(const std::optional<std::int64_t> precision, size(kMaxFormatPrecision));
      spec.precision = static_cast<int>(std::max<std::int64_t>(0, precision.value_or(0)));
    }
    while (at_ < format_.size() && (format_[at_] == 'l' || format_[at_] == 'h' || format_[at_] == 'L')) ++at_;
    if (at_ >= format_.size()) return error("incomplete format");
    spec.type = format_[at_++];
    if (spec.type == '%') {
      out_.append("%");
      return {};
    }
    if (!value) {
      VN_ASSIGN(value, next_value());
    }
    return conversion(*value, spec, zero);
  }

  Status conversion(const Value& value, FormatSpec spec, bool zero) {
    switch (spec.type) {
      case 's':
      case 'r':
      case 'a':
      case 'c': return text(value, spec);
      case 'd':
      case 'i':
      case 'u': spec.type = 'd'; break;
      case 'x':
      case 'X':
      case 'o':
      case 'e':
      case 'E':
      case 'f':
      case 'F':
      case 'g':
      case 'G': break;
      default: return error("unsupported format character '{}'", escape(std::string_view(&spec.type, 1)));
    }
    if (!value.is_number() || value.is(Kind::kBigInteger)) {
      return error("%{} format: a real number is required, not {}", spec.type, type_name(value));
    }
    if (zero && spec.align == '\0') {
      spec.align = '=';
      spec.fill = U'0';
    }
    const bool as_integer = spec.type == 'd' || spec.type == 'x' || spec.type == 'X' || spec.type == 'o';
    VN_ASSIGN(NumberText number, as_integer ? integer(value, spec) : format_real(value.as_real(), spec));
    append_padded(out_, number.text, spec, '>', number.sign_size);
    return out_.status();
  }

  static Result<NumberText> integer(const Value& value, const FormatSpec& spec) {
    std::int64_t whole = value.is_int() ? value.as_int() : 0;
    if (value.is(Kind::kFloat)) {
      if (spec.type != 'd') return error("%{} format: an integer is required, not float", spec.type);
      if (!(std::fabs(value.as_real()) < 0x1p63)) return error("cannot convert float to a 64-bit integer");
      whole = static_cast<std::int64_t>(value.as_real());
    }
    VN_ASSIGN(NumberText number, format_integer(whole, spec));
    const std::size_t digits = number.text.size() - number.sign_size;
    const auto wanted = static_cast<std::size_t>(spec.precision.value_or(0));
    if (digits < wanted) number.text.insert(number.sign_size, wanted - digits, '0');
    return number;
  }

  Status text(const Value& value, const FormatSpec& spec) {
    TextBuilder body(runtime_);
    if (spec.type == 's') {
      VN_TRY(append_str(runtime_, body, value));
    } else if (spec.type == 'c') {
      if (value.is_int() && value.as_int() >= 0 && value.as_int() <= 0x10FFFF) {
        body.append_char(static_cast<char32_t>(value.as_int()));
      } else if (value.is_string() && value.string().length == 1) {
        body.append(value.text());
      } else {
        return error("%c requires int or char");
      }
    } else {
      VN_TRY(append_repr(runtime_, body, value));
    }
    VN_ASSIGN(Value whole, body.finish());
    if (markup_ && !is_markup(value)) {
      VN_ASSIGN(whole, escaped(runtime_, whole));
    }
    std::string_view shown = whole.text();
    if (spec.precision) shown = shown.substr(0, byte_offset(shown, static_cast<std::size_t>(*spec.precision)));
    append_padded(out_, shown, spec, '>');
    return out_.status();
  }

  Runtime& runtime_;
  const std::string& format_;
  const bool markup_;  // what is put in gets escaped
  const Value& values_;
  TextBuilder out_;
  bool is_tuple_ = false;
  std::size_t at_ = 0;
  std::size_t next_ = 0;
};

}  // namespace

Result<Value> format_percent(Runtime& runtime, const Value& format, const Value& values) {
  return PercentFormatter(runtime, format, values).run();
}

}  // namespace vernier::jinja
