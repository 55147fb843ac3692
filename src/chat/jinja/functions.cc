// The functions every template can call.
#include <algorithm>
#include <array>
#include <string>

#include "chat/jinja/builders.h"
#include "chat/jinja/builtins.h"
#include "chat/jinja/clock_format.h"
#include "chat/jinja/value_text.h"

namespace vernier::jinja {
namespace {

Result<Value> range(Runtime& runtime, const Value&, const Args& args) {
  VN_ASSIGN(const Bound bound, bind(args, "range", {"start", "stop", "step"}, 1));
  const bool one = bound[1] == nullptr;
  VN_ASSIGN(const std::int64_t start, one ? Result<std::int64_t>(0) : integer_argument(bound[0], 0, "range argument"));
  VN_ASSIGN(const std::int64_t stop, integer_argument(one ? bound[0] : bound[1], 0, "range argument"));
  VN_ASSIGN(const std::int64_t step, integer_argument(bound[2], 1, "range argument"));
  if (step == 0) return error("range() arg 3 must not be zero");
  constexpr std::uint64_t kMaxRange = 100'000;  // the limit of Jinja's sandbox
  std::uint64_t count = 0;
  // Unsigned differences: they can't overflow, whatever the bounds are.
  if (step > 0 ? start < stop : start > stop) {
    const std::uint64_t distance = step > 0 ? static_cast<std::uint64_t>(stop) - static_cast<std::uint64_t>(start)
                                            : static_cast<std::uint64_t>(start) - static_cast<std::uint64_t>(stop);
    const std::uint64_t stride = step > 0 ? static_cast<std::uint64_t>(step) : 0 - static_cast<std::uint64_t>(step);
    count = (distance - 1) / stride + 1;
  }
  if (count > kMaxRange) return error("range of {} items is above the limit of {}", count, kMaxRange);
  ListBuilder list(runtime, SequenceType::kRange);
  std::int64_t value = start;
  for (std::uint64_t i = 0; i < count; ++i) {
    if (i > 0) value += step;
    list.push(Value::integer(value));
  }
  return list.finish(step == 1 ? fmt::format("range({}, {})", start, stop)
                               : fmt::format("range({}, {}, {})", start, stop, step));
}

/// dict(mapping or pairs, key=value, ...)
Result<Value> make_dict(Runtime& runtime, const Value&, const Args& args) {
  if (args.positional.size() > 1) return error("dict expected at most 1 argument, got {}", args.positional.size());
  DictBuilder dict(runtime);
  if (!args.positional.empty() && args.positional[0].is(Kind::kDict)) {
    for (const auto& [key, value] : args.positional[0].dict().entries) dict.set(key, value);
  } else if (!args.positional.empty()) {
    VN_ASSIGN(const Value items, iterate(runtime, args.positional[0]));
    for (const Value& item : items.sequence().items) {
      VN_ASSIGN(const Value pair, iterate(runtime, item));
      if (pair.sequence().items.size() != 2) return error("dict needs pairs of a key and a value");
      dict.set(pair.sequence().items[0], pair.sequence().items[1]);
    }
  }
  for (const auto& [name, value] : args.keyword) dict.set_string(name, value);
  return dict.finish();
}

Result<Value> make_namespace(Runtime& runtime, const Value& self, const Args& args) {
  VN_ASSIGN(const Value dict, make_dict(runtime, self, args));
  VN_ASSIGN(auto object, make_object<NamespaceObject>(runtime, sizeof(runtime.cyclic[0]), 1));
  for (const auto& [key, value] : dict.dict().entries) {
    if (!key.is_string()) return error("namespace members need string names");
    VN_TRY(object->set(runtime, key.text(), value));
  }
  runtime.cyclic.push_back(object);
  return Value(Kind::kNamespace, std::move(object));
}

/// The text that raise_exception() reports: as it is, but on one line and of bounded length.
Result<Value> raise_exception(Runtime& runtime, const Value&, const Args& args) {
  VN_ASSIGN(const Bound bound, bind(args, "raise_exception", {"message"}, 1));
  VN_ASSIGN(const Value text, to_string(runtime, *bound[0]));
  constexpr std::size_t kMaxMessage = 4096;
  std::string message;
  for (const char ch : text.text().substr(0, kMaxMessage)) {
    if (ch == '\n') {
      message += "\\n";
    } else if (static_cast<unsigned char>(ch) < 0x20 || ch == 0x7F) {
      message += fmt::format("\\x{:02X}", static_cast<unsigned>(ch));
    } else {
      message.push_back(ch);
    }
  }
  return error("{}", message);
}

Result<Value> strftime_now(Runtime& runtime, const Value&, const Args& args) {
  VN_ASSIGN(const Bound bound, bind(args, "strftime_now", {"format"}, 1));
  VN_ASSIGN(const std::string_view format, string_argument(bound[0], {}, "time format"));
  TextBuilder out(runtime);
  VN_TRY(append_time(out, format, runtime.now));
  return out.finish();
}

constexpr BuiltinEntry kFunctions[] = {
    {"dict", make_dict}, {"namespace", make_namespace},  {"raise_exception", raise_exception},
    {"range", range},    {"strftime_now", strftime_now},
};

}  // namespace

Builtin find_function(std::string_view name) { return find_in(kFunctions, name); }

}  // namespace vernier::jinja
