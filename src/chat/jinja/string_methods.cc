#include "chat/jinja/string_methods.h"

#include <algorithm>

#include "base/utf8.h"
#include "chat/jinja/builders.h"
#include "chat/jinja/format.h"
#include "chat/jinja/markup.h"
#include "chat/jinja/operators.h"
#include "chat/jinja/text_ops.h"

namespace vernier::jinja {
namespace {

constexpr std::size_t kNone = std::string_view::npos;

// --- white space and case --------------------------------------------------------------------------------------------

Result<Value> strip_with(Runtime& runtime, const Value& self, const Args& args, StripEnds ends) {
  VN_ASSIGN(const Bound bound, bind(args, "strip", {"chars"}));
  const bool given = bound[0] != nullptr && !bound[0]->is_none();
  std::string_view chars;
  if (given) {
    VN_ASSIGN(chars, string_argument(bound[0], {}, "strip arg"));
    // Every character of the text may be compared with every one of `chars`.
    VN_TRY(runtime.budget.spend_text(self.text().size() / 16 * (chars.size() + 1)));
  }
  return make_string(runtime, strip(self.text(), given ? &chars : nullptr, ends));
}

Result<Value> strip_both(Runtime& runtime, const Value& self, const Args& args) {
  return strip_with(runtime, self, args, {});
}
Result<Value> strip_left(Runtime& runtime, const Value& self, const Args& args) {
  return strip_with(runtime, self, args, {.left = true, .right = false});
}
Result<Value> strip_right(Runtime& runtime, const Value& self, const Args& args) {
  return strip_with(runtime, self, args, {.left = false, .right = true});
}

template <std::string (*mapping)(std::string_view)>
Result<Value> map_case(Runtime& runtime, const Value& self, const Args& args) {
  VN_TRY(bind(args, "case mapping", {}));
  Charge scratch;  // a character's mapping takes at most three times its size
  VN_TRY(scratch.grow(runtime.budget, 3 * self.text().size()));
  VN_TRY(runtime.budget.spend_text(4 * self.text().size()));
  return make_string(runtime, mapping(self.text()));
}

// --- tests -----------------------------------------------------------------------------------------------------------

template <bool (*test)(char32_t)>
Result<Value> all_are(Runtime& runtime, const Value& self, const Args& args) {
  VN_TRY(bind(args, "character test", {}));
  VN_TRY(runtime.budget.spend_text(4 * self.text().size()));
  const std::string_view text = self.text();
  for (std::size_t at = 0; at < text.size();) {
    const Utf8Char ch = decode_utf8(text, at);
    if (!test(ch.code_point)) return Value::boolean(false);
    at += ch.size;
  }
  return Value::boolean(!text.empty());
}

bool is_alphanumeric(char32_t c) { return is_alphabetic(c) || is_decimal(c) || is_digit(c); }
bool is_ascii(char32_t c) { return c < 0x80; }

/// islower() and isupper(): at least one letter of the wanted case, none of the other.
template <bool (*wanted)(char32_t), bool (*other)(char32_t)>
Result<Value> cased(Runtime& runtime, const Value& self, const Args& args) {
  VN_TRY(bind(args, "case test", {}));
  VN_TRY(runtime.budget.spend_text(4 * self.text().size()));
  bool any = false;
  for (std::size_t at = 0; at < self.text().size();) {
    const Utf8Char ch = decode_utf8(self.text(), at);
    if (other(ch.code_point)) return Value::boolean(false);
    any |= wanted(ch.code_point);
    at += ch.size;
  }
  return Value::boolean(any);
}

/// The part of self that the optional start and end arguments choose: always a string.
Result<Value> section(Runtime& runtime, const Value& self, const Bound& bound) {
  if (bound[1] == nullptr && bound[2] == nullptr) return self;
  const Value none = Value::none();
  VN_ASSIGN(
      Value part,
      get_slice(runtime, self, {bound[1] != nullptr ? *bound[1] : none, bound[2] != nullptr ? *bound[2] : none, none}));
  // A slice with bounds of other types is undefined in a template, but an error as an argument.
  if (!part.is_string()) return error("slice indices must be integers or None");
  return part;
}

Result<Value> affix_test(Runtime& runtime, const Value& self, const Args& args, bool at_start) {
  const std::string_view name = at_start ? "startswith" : "endswith";
  VN_ASSIGN(const Bound bound, bind(args, name, {"affix", "start", "end"}, 1));
  VN_ASSIGN(const Value part, section(runtime, self, bound));
  const auto matches = [&](const Value& affix) {
    return at_start ? part.text().starts_with(affix.text()) : part.text().ends_with(affix.text());
  };
  if (bound[0]->is_string()) return Value::boolean(matches(*bound[0]));
  if (!bound[0]->is(Kind::kSequence) || bound[0]->sequence().type != SequenceType::kTuple) {
    return error("{} first arg must be str or a tuple of str, not {}", name, type_name(*bound[0]));
  }
  for (const Value& affix : bound[0]->sequence().items) {
    if (!affix.is_string()) return error("tuple for {} must only contain str, not {}", name, type_name(affix));
    if (matches(affix)) return Value::boolean(true);
  }
  return Value::boolean(false);
}

Result<Value> starts_with(Runtime& runtime, const Value& self, const Args& args) {
  return affix_test(runtime, self, args, true);
}
Result<Value> ends_with(Runtime& runtime, const Value& self, const Args& args) {
  return affix_test(runtime, self, args, false);
}

// --- searching -------------------------------------------------------------------------------------------------------

Result<std::int64_t> position_of(Runtime& runtime, const Value& self, const Args& args, bool last) {
  VN_ASSIGN(const Bound bound, bind(args, "find", {"sub", "start", "end"}, 1));
  VN_ASSIGN(const std::string_view needle, string_argument(bound[0], {}, "find argument"));
  VN_ASSIGN(const Value part, section(runtime, self, bound));
  VN_TRY(runtime.budget.spend_text(part.text().size()));
  std::size_t found = kNone;
  if (last) {
    VN_ASSIGN(found, find_last(runtime, part.text(), needle));
  } else {
    found = find_text(part.text(), needle);
  }
  if (found == kNone) return -1;
  auto index = static_cast<std::int64_t>(count_code_points(std::string_view(part.text()).substr(0, found)));
  if (bound[1] != nullptr && bound[1]->is_int()) {
    const auto length = static_cast<std::int64_t>(self.string().length);
    const std::int64_t start = bound[1]->as_int();
    index += start >= 0 ? start : std::max<std::int64_t>(0, start < -length ? 0 : start + length);
  }
  return index;
}

template <bool last, bool must_exist>
Result<Value> find_position(Runtime& runtime, const Value& self, const Args& args) {
  VN_ASSIGN(const std::int64_t index, position_of(runtime, self, args, last));
  if (must_exist && index < 0) return error("substring not found");
  return Value::integer(index);
}

Result<Value> count(Runtime& runtime, const Value& self, const Args& args) {
  VN_ASSIGN(const Bound bound, bind(args, "count", {"sub", "start", "end"}, 1));
  VN_ASSIGN(const std::string_view needle, string_argument(bound[0], {}, "count argument"));
  VN_ASSIGN(const Value part, section(runtime, self, bound));
  VN_TRY(runtime.budget.spend_text(part.text().size()));
  if (needle.empty()) return Value::integer(static_cast<std::int64_t>(part.string().length) + 1);
  std::int64_t found = 0;
  for (std::size_t at = find_text(part.text(), needle); at != kNone; at = find_text(part.text(), needle, at)) {
    ++found;
    at += needle.size();
  }
  return Value::integer(found);
}

Result<Value> replace(Runtime& runtime, const Value& self, const Args& args) {
  VN_ASSIGN(const Bound bound, bind(args, "replace", {"old", "new", "count"}, 2));
  Replacement replacement;
  VN_ASSIGN(replacement.from, string_argument(bound[0], {}, "replace argument 1"));
  VN_TRY(string_argument(bound[1], {}, "replace argument 2"));
  VN_ASSIGN(const Value to, is_markup(self) ? escaped(runtime, *bound[1]) : Result<Value>(*bound[1]));
  replacement.to = to.text();
  VN_ASSIGN(replacement.count, integer_argument(bound[2], -1, "replace count"));
  return replace_text(runtime, self.text(), replacement);
}

// --- joining and padding ---------------------------------------------------------------------------------------------

Result<Value> join(Runtime& runtime, const Value& self, const Args& args) {
  VN_ASSIGN(const Bound bound, bind(args, "join", {"iterable"}, 1));
  VN_ASSIGN(const Value items, iterate(runtime, *bound[0]));
  TextBuilder out(runtime);
  std::size_t index = 0;
  for (const Value& item : items.sequence().items) {
    if (!item.is_string()) {
      return error("sequence item {}: expected str instance, {} found", index, type_name(item));
    }
    VN_ASSIGN(const Value part, is_markup(self) ? escaped(runtime, item) : Result<Value>(item));
    if (index++ > 0) out.append(self.text());
    out.append(part.text());
  }
  return out.finish();
}

Result<Value> pad(Runtime& runtime, const Value& self, const Args& args, char align) {
  VN_ASSIGN(const Bound bound, bind(args, "padding", {"width", "fillchar"}, 1));
  VN_ASSIGN(const std::int64_t width, integer_argument(bound[0], 0, "width"));
  VN_ASSIGN(const std::string_view fill, string_argument(bound[1], " ", "fill character"));
  if (count_code_points(fill) != 1) return error("the fill character must be exactly one character long");
  const auto length = static_cast<std::int64_t>(self.string().length);
  const std::size_t missing = width > length ? static_cast<std::size_t>(width - length) : 0;
  std::size_t left = align == '<' ? 0 : missing;
  // Python's centring puts the odd character to the right of texts whose width is even, else to the left.
  if (align == '^') left = missing / 2 + (missing % 2 != 0 && width % 2 != 0 ? 1 : 0);
  TextBuilder out(runtime);
  out.append_repeated(fill, left);
  out.append(self.text());
  out.append_repeated(fill, missing - left);
  return out.finish();
}

template <char align>
Result<Value> pad_to(Runtime& runtime, const Value& self, const Args& args) {
  return pad(runtime, self, args, align);
}

Result<Value> zero_fill(Runtime& runtime, const Value& self, const Args& args) {
  VN_ASSIGN(const Bound bound, bind(args, "zfill", {"width"}, 1));
  VN_ASSIGN(const std::int64_t width, integer_argument(bound[0], 0, "width"));
  const auto length = static_cast<std::int64_t>(self.string().length);
  const std::string_view text = self.text();
  const std::size_t sign = !text.empty() && (text[0] == '+' || text[0] == '-') ? 1 : 0;
  TextBuilder out(runtime);
  out.append(text.substr(0, sign));
  out.append_repeated("0", width > length ? static_cast<std::size_t>(width - length) : 0);
  out.append(text.substr(sign));
  return out.finish();
}

template <bool prefix>
Result<Value> remove_affix(Runtime& runtime, const Value& self, const Args& args) {
  VN_ASSIGN(const Bound bound, bind(args, prefix ? "removeprefix" : "removesuffix", {"affix"}, 1));
  VN_ASSIGN(const std::string_view affix, string_argument(bound[0], {}, "affix"));
  std::string_view text = self.text();
  if (prefix && text.starts_with(affix)) text.remove_prefix(affix.size());
  if (!prefix && text.ends_with(affix)) text.remove_suffix(affix.size());
  return make_string(runtime, text);
}

constexpr BuiltinEntry kMethods[] = {
    {"capitalize", keeps_mark<map_case<to_capitalized>>},
    {"casefold", keeps_mark<map_case<to_lower>>},
    {"center", keeps_mark<pad_to<'^'>>},
    {"count", count},
    {"endswith", ends_with},
    {"find", find_position<false, false>},
    {"format", keeps_mark<format_braces>},
    {"index", find_position<false, true>},
    {"isalnum", all_are<is_alphanumeric>},
    {"isalpha", all_are<is_alphabetic>},
    {"isascii", all_are<is_ascii>},
    {"isdecimal", all_are<is_decimal>},
    {"isdigit", all_are<is_digit>},
    {"islower", cased<is_cased_lower, is_cased_upper>},
    {"isspace", all_are<is_space>},
    {"isupper", cased<is_cased_upper, is_cased_lower>},
    {"join", keeps_mark<join>},
    {"ljust", keeps_mark<pad_to<'<'>>},
    {"lower", keeps_mark<map_case<to_lower>>},
    {"lstrip", keeps_mark<strip_left>},
    {"partition", keeps_mark<partition_first>},
    {"removeprefix", keeps_mark<remove_affix<true>>},
    {"removesuffix", keeps_mark<remove_affix<false>>},
    {"replace", keeps_mark<replace>},
    {"rfind", find_position<true, false>},
    {"rindex", find_position<true, true>},
    {"rjust", keeps_mark<pad_to<'>'>>},
    {"rpartition", keeps_mark<partition_last>},
    {"rsplit", keeps_mark<split_right>},
    {"rstrip", keeps_mark<strip_right>},
    {"split", keeps_mark<split_left>},
    {"splitlines", keeps_mark<split_into_lines>},
    {"startswith", starts_with},
    {"strip", keeps_mark<strip_both>},
    {"swapcase", keeps_mark<map_case<to_swapped_case>>},
    {"title", keeps_mark<map_case<to_title>>},
    {"upper", keeps_mark<map_case<to_upper>>},
    {"zfill", keeps_mark<zero_fill>},
};

}  // namespace

Result<Value> replace_text(Runtime& runtime, std::string_view text, const Replacement& replacement) {
  VN_TRY(runtime.budget.spend_text(text.size()));
  TextBuilder out(runtime);
  std::int64_t left = replacement.count < 0 ? std::int64_t{1} << 62U : replacement.count;
  std::size_t at = 0;
  if (replacement.from.empty()) {  // goes between all characters and to both ends
    for (; left > 0 && out.ok(); --left) {
      out.append(replacement.to);
      if (at >= text.size()) break;
      const std::size_t size = decode_utf8(text, at).size;
      out.append(text.substr(at, size));
      at += size;
    }
  }
  while (!replacement.from.empty() && left-- > 0 && out.ok()) {
    const std::size_t found = find_text(text, replacement.from, at);
    if (found == kNone) break;
    out.append(text.substr(at, found - at));
    out.append(replacement.to);
    at = found + replacement.from.size();
  }
  out.append(text.substr(std::min(at, text.size())));
  return out.finish();
}

Result<std::size_t> find_last(Runtime& runtime, std::string_view text, std::string_view needle) {
  if (needle.empty()) return text.size();
  std::size_t last = kNone;
  for (std::size_t at = 0;; at = last + 1) {
    const std::size_t found = find_text(text, needle, at);
    VN_TRY(runtime.budget.spend_text(needle.size()));
    if (found == kNone) return last;
    last = found;
  }
}

Builtin find_string_method(std::string_view name) { return find_in(kMethods, name); }

}  // namespace vernier::jinja
