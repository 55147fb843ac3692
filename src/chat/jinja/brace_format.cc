// str.format(). Members and items in a field are looked up as the template's own `.` and `[]` do.
#include "base/utf8.h"
#include "chat/jinja/format.h"
#include "chat/jinja/format_spec.h"
#include "chat/jinja/markup.h"
#include "chat/jinja/operators.h"
#include "chat/jinja/text_ops.h"
#include "chat/jinja/tokens.h"
#include "chat/jinja/value_text.h"

namespace vernier::jinja {
namespace {

bool is_align(char32_t c) { return c == U'<' || c == U'>' || c == U'^' || c == U'='; }

Result<FormatSpec> parse_spec(std::string_view text) {
  FormatSpec spec;
  std::size_t at = 0;
  if (!text.empty()) {
    const Utf8Char first = decode_utf8(text, 0);
    if (first.size < text.size() && is_align(static_cast<unsigned char>(text[first.size]))) {
      spec.fill = first.code_point;
      spec.align = text[first.size];
      at = first.size + 1U;
    } else if (is_align(first.code_point)) {
      spec.align = text[0];
      at = 1;
    }
  }
  const auto next_is = [&](std::string_view set) {
    return at < text.size() && set.find(text[at]) != std::string::npos;
  };
  if (next_is("+- ")) spec.sign = text[at++];
  if (next_is("#")) {
    spec.alternate = true;
    ++at;
  }
  if (next_is("0")) {
    if (spec.align == '\0') {
      spec.align = '=';
      spec.fill = U'0';
    }
    ++at;
  }
  VN_ASSIGN(const auto width, read_size(text, at, kMaxFormatWidth));
  spec.width = width.value_or(0);
  if (next_is(",_")) spec.grouping = text[at++];
  if (next_is(".")) {
    ++at;
    VN_ASSIGN(const auto precision, read_size(text, at, kMaxFormatPrecision));
    if (!precision) return error("Format specifier missing precision");
    spec.precision = static_cast<int>(*precision);
  }
  if (at < text.size()) spec.type = text[at++];
  if (at != text.size()) return error("Invalid format specifier '{}'", escape(text));
  return spec;
}

class BraceFormatter {
 public:
  BraceFormatter(Runtime& runtime, const Value& format, const Args& args)
      : runtime_(runtime), format_(format.text()), markup_(is_markup(format)), args_(args), out_(runtime) {}

  Result<Value> run() {
    while (at_ < format_.size()) {
      const std::size_t brace = std::min(format_.find_first_of("{}", at_), format_.size());
      out_.append(format_.substr(at_, brace - at_));
      at_ = brace;
      if (at_ >= format_.size()) break;
      if (at_ + 1 < format_.size() && format_[at_ + 1] == format_[at_]) {
        out_.append(format_.substr(at_, 1));
        at_ += 2;
      } else if (format_[at_] == '}') {
        return error("Single '}}' encountered in format string");
      } else {
        VN_TRY(field());
      }
    }
    return out_.finish();
  }

 private:
  Status field() {
    VN_TRY(runtime_.budget.spend());
    const std::size_t end = format_.find_first_of("{}", at_ + 1);
    if (end == std::string_view::npos) return error("expected '}}' before end of string");
    if (format_[end] == '{') return error("fields within a format's fields are not supported");
    std::string_view text = format_.substr(at_ + 1, end - at_ - 1);
    at_ = end + 1;
    const std::size_t colon = std::min(text.find(':'), text.size());
    const std::string_view spec_text = colon < text.size() ? text.substr(colon + 1) : std::string_view();
    text = text.substr(0, colon);
    char conversion = '\0';
    if (text.size() >= 2 && text[text.size() - 2] == '!') {
      conversion = text.back();
      text.remove_suffix(2);
    }
    VN_ASSIGN(const Value value, lookup(text));
    VN_ASSIGN(const FormatSpec spec, parse_spec(spec_text));
    return append(value, spec, conversion);
  }

  /// name, index or nothing (the next argument), then .member and [item] steps.
  Result<Value> lookup(std::string_view path) {
    const std::size_t head_end = std::min(path.find_first_of(".["), path.size());
    VN_ASSIGN(Value value, argument(path.substr(0, head_end)));
    std::size_t at = head_end;
    while (at < path.size()) {
      const bool member = path[at] == '.';
      const std::size_t end = member ? std::min(path.find_first_of(".[", at + 1), path.size()) : path.find(']', at);
      if (end == std::string_view::npos) return error("expected ']' in format field");
      const std::string_view name = path.substr(at + 1, end - at - 1);
      if (member) {
        VN_ASSIGN(value, get_attribute(runtime_, value, name));
      } else {
        std::size_t digits_end = 0;
        VN_ASSIGN(const auto index, read_size(name, digits_end, kMaxFormatWidth));
        VN_ASSIGN(const Value key, index&& digits_end == name.size()
                                       ? Result<Value>(Value::integer(static_cast<std::int64_t>(*index)))
                                       : make_string(runtime_, name));
        VN_ASSIGN(value, get_item(runtime_, value, key));
      }
      at = end + (member ? 0 : 1);
      if (at < path.size() && path[at] != '.' && path[at] != '[') return error("malformed format field");
    }
    return value;
  }

  Result<Value> argument(std::string_view name) {
    std::size_t at = 0;
    VN_ASSIGN(const auto index, read_size(name, at, kMaxFormatWidth));
    if (name.empty() || (index && at == name.size())) {
      if (next_ > 0 ? !name.empty() : (name.empty() && numbered_)) {
        return error("format fields must be all numbered or all not");
      }
      numbered_ |= !name.empty();
      const std::size_t which = name.empty() ? next_++ : *index;
      if (which >= args_.positional.size()) return error("Replacement index {} out of range", which);
      return args_.positional[which];
    }
    for (const auto& [key, value] : args_.keyword) {
      if (key == name) return value;
    }
    return error("no format argument '{}'", escape(name));
  }

  Status append(const Value& value, const FormatSpec& spec, char conversion) {
    if (conversion == '\0' && value.is_number() && !value.is(Kind::kBigInteger) && spec.type != 's') {
      const bool plain_bool = value.is(Kind::kBool) && spec.type == '\0';
      const bool real = value.is(Kind::kFloat) ||
                        (spec.type != '\0' && std::string_view("eEfFgG%").find(spec.type) != std::string_view::npos);
      if (!plain_bool) {
        VN_ASSIGN(const NumberText number,
                  real ? format_real(value.as_real(), spec) : format_integer(value.as_int(), spec));
        append_padded(out_, number.text, spec, '>', number.sign_size);
        return out_.status();
      }
    }
    if (spec.type != '\0' && spec.type != 's') {
      return error("Unknown format code '{}' for object of type '{}'", escape(std::string_view(&spec.type, 1)),
                   type_name(value));
    }
    TextBuilder body(runtime_);
    if (conversion == 'r' || conversion == 'a') {
      VN_TRY(append_repr(runtime_, body, value));
    } else if (conversion == '\0' || conversion == 's') {
      VN_TRY(append_str(runtime_, body, value));
    } else {
      return error("unknown conversion in format field");
    }
    VN_ASSIGN(Value whole, body.finish());
    if (markup_ && !is_markup(value)) {
      VN_ASSIGN(whole, escaped(runtime_, whole));
    }
    std::string_view shown = whole.text();
    if (spec.precision) shown = shown.substr(0, byte_offset(shown, static_cast<std::size_t>(*spec.precision)));
    append_padded(out_, shown, spec, '<');
    return out_.status();
  }

  Runtime& runtime_;
  std::string_view format_;
  const bool markup_;  // what is put in gets escaped
  const Args& args_;
  TextBuilder out_;
  std::size_t at_ = 0;
  std::size_t next_ = 0;
  bool numbered_ = false;
};

}  // namespace

Result<Value> format_braces(Runtime& runtime, const Value& format, const Args& args) {
  return BraceFormatter(runtime, format, args).run();
}

}  // namespace vernier::jinja
