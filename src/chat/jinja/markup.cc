#include "chat/jinja/markup.h"

#include "chat/jinja/builders.h"
#include "chat/jinja/builtins.h"

namespace vernier::jinja {

bool is_markup(const Value& value) { return value.is_string() && value.string().markup; }

Result<Value> marked(Runtime& runtime, const Value& value) {
  if (value.is_string()) {
    if (value.string().markup) return value;
    VN_ASSIGN(Value copy, make_string(runtime, value.text()));
    static_cast<StringObject&>(*copy.object()).markup = true;
    return copy;
  }
  if (!value.is(Kind::kSequence)) return value;
  ListBuilder list(runtime, value.sequence().type);
  for (const Value& item : value.sequence().items) {
    VN_ASSIGN(Value copy, marked(runtime, item));
    list.push(std::move(copy));
  }
  return list.finish();
}

Result<Value> escaped(Runtime& runtime, const Value& value) {
  if (is_markup(value)) return value;
  VN_ASSIGN(const Value text, to_string(runtime, value));
  VN_TRY(runtime.budget.spend_text(text.text().size()));
  static constexpr std::string_view kSpecial = "&<>'\"";
  static constexpr std::string_view kEntities[] = {"&amp;", "&lt;", "&gt;", "&#39;", "&#34;"};
  TextBuilder out(runtime);
  const std::string_view source = text.text();
  for (std::size_t at = 0; at < source.size() && out.ok();) {
    const std::size_t end = std::min(source.find_first_of(kSpecial, at), source.size());
    out.append(source.substr(at, end - at));
    if (end < source.size()) out.append(kEntities[kSpecial.find(source[end])]);
    at = end + 1;
  }
  VN_ASSIGN(Value result, out.finish());
  static_cast<StringObject&>(*result.object()).markup = true;
  return result;
}

}  // namespace vernier::jinja
