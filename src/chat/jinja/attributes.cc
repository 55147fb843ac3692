// Subscripts, slices and attributes. Attributes are those listed here and in the method tables; there is no way from
// them to anything of the host.
#include <algorithm>
#include <array>
#include <limits>

#include "base/utf8.h"
#include "chat/jinja/builders.h"
#include "chat/jinja/markup.h"
#include "chat/jinja/node.h"
#include "chat/jinja/operators.h"
#include "chat/jinja/text_ops.h"

namespace vernier::jinja {
namespace {

/// How messages call the object: "'dict object'", "None".
std::string described(const Value& object) {
  return object.is_none() ? "None" : fmt::format("'{} object'", type_name(object));
}

Result<Value> no_attribute(Runtime& runtime, const Value& object, std::string_view name) {
  return make_undefined(runtime, fmt::format("{} has no attribute '{}'", described(object), escape(name)));
}

const Value& item_at(const LoopObject& loop, std::size_t index) { return loop.items.sequence().items[index]; }

Result<Value> loop_attribute(Runtime& runtime, const Value& object, std::string_view name) {
  const LoopObject& loop = object.loop();
  const auto length = static_cast<std::int64_t>(loop.items.sequence().items.size());
  const auto index0 = static_cast<std::int64_t>(loop.index0);
  if (name == "index") return Value::integer(index0 + 1);
  if (name == "index0") return Value::integer(index0);
  if (name == "first") return Value::boolean(index0 == 0);
  if (name == "last") return Value::boolean(index0 + 1 >= length);
  if (name == "length") return Value::integer(length);
  if (name == "revindex") return Value::integer(length - index0);
  if (name == "revindex0") return Value::integer(length - index0 - 1);
  if (name == "depth") return Value::integer(static_cast<std::int64_t>(loop.depth0) + 1);
  if (name == "depth0") return Value::integer(static_cast<std::int64_t>(loop.depth0));
  if (name == "previtem") {
    return index0 == 0 ? make_undefined(runtime, "there is no previous item")
                       : Result<Value>(item_at(loop, loop.index0 - 1));
  }
  if (name == "nextitem") {
    return index0 + 1 >= length ? make_undefined(runtime, "there is no next item")
                                : Result<Value>(item_at(loop, loop.index0 + 1));
  }
  return no_attribute(runtime, object, name);
}

Result<Value> macro_attribute(Runtime& runtime, const Value& object, std::string_view name) {
  const MacroNode& node = *object.macro().node;
  if (name == "name") return make_string(runtime, node.name_text);
  if (name == "catch_kwargs") return Value::boolean(node.signature.uses_kwargs);
  if (name == "catch_varargs") return Value::boolean(node.signature.uses_varargs);
  if (name == "caller") return Value::boolean(node.signature.uses_caller);
  if (name == "arguments") {
    ListBuilder names(runtime, SequenceType::kTuple);
    for (const auto& parameter : node.signature.parameters) names.push_string(parameter.name);
    return names.finish();
  }
  return no_attribute(runtime, object, name);
}

/// The attribute proper, without falling back to items; nothing when there is none.
Result<std::optional<Value>> own_attribute(Runtime& runtime, const Value& object, std::string_view name) {
  if (const Builtin method = find_method(object, name)) {
    VN_ASSIGN(Value bound, make_method(runtime, name, method, object));
    return std::optional<Value>(std::move(bound));
  }
  if (is_mutating_method(object, name)) {
    VN_ASSIGN(Value refused, make_undefined(runtime, fmt::format("access to attribute '{}' of '{}' object is unsafe",
                                                                 name, type_name(object))));
    return std::optional<Value>(std::move(refused));
  }
  if (object.is(Kind::kNamespace)) {
    const Value* member = object.name_space().find(name);
    return member != nullptr ? std::optional<Value>(*member) : std::nullopt;
  }
  if (object.is(Kind::kLoop)) {
    VN_ASSIGN(Value value, loop_attribute(runtime, object, name));
    return std::optional<Value>(std::move(value));
  }
  if (object.is(Kind::kMacro)) {
    VN_ASSIGN(Value value, macro_attribute(runtime, object, name));
    return std::optional<Value>(std::move(value));
  }
  return std::optional<Value>();
}

/// The item at a Python index (negative ones count from the end), or nothing outside.
std::optional<std::size_t> position(std::int64_t index, std::size_t size) {
  const auto count = static_cast<std::int64_t>(size);
  if (index < 0) index += count;
  return index >= 0 && index < count ? std::optional(static_cast<std::size_t>(index)) : std::nullopt;
}

bool has_positions(const Value& value) {
  return value.is(Kind::kSequence) && value.sequence().type <= SequenceType::kRange;
}

/// The item proper; nothing when there is none.
Result<std::optional<Value>> own_item(Runtime& runtime, const Value& object, const Value& key) {
  if (object.is(Kind::kDict)) {
    // Keys that can't be hashed aren't in the dict: Python's TypeError ends in an undefined value too.
    if (key.is(Kind::kDict) || key.is(Kind::kSequence)) {
      if (!key.is(Kind::kSequence) || key.sequence().type != SequenceType::kTuple) return std::optional<Value>();
    }
    VN_ASSIGN(const DictObject::Entry* entry, find_entry(runtime, object.dict(), key));
    return entry != nullptr ? std::optional<Value>(entry->second) : std::nullopt;
  }
  if (!key.is_int()) return std::optional<Value>();
  if (has_positions(object)) {
    const auto at = position(key.as_int(), object.sequence().items.size());
    return at ? std::optional<Value>(object.sequence().items[*at]) : std::nullopt;
  }
  if (object.is_string()) {
    const StringObject& string = object.string();
    const auto at = position(key.as_int(), string.length);
    if (!at) return std::optional<Value>();
    std::size_t offset = *at;
    if (!string.ascii()) {
      VN_TRY(runtime.budget.spend_text(string.text.size()));
      offset = byte_offset(string.text, *at);
    }
    const std::size_t size = decode_utf8(string.text, offset).size;
    VN_ASSIGN(Value character, make_string(runtime, std::string_view(string.text).substr(offset, size)));
    if (string.markup) {
      VN_ASSIGN(character, marked(runtime, character));
    }
    return std::optional<Value>(std::move(character));
  }
  return std::optional<Value>();
}

/// A slice with its bounds resolved: `count` items from `start` in steps of `step`.
struct Walk {
  std::int64_t start = 0;
  std::int64_t step = 1;
  std::size_t count = 0;
};

/// A bound as Python resolves it for a sequence of `length` items.
std::int64_t bound(const Value& value, std::int64_t fallback, std::int64_t length, bool backwards) {
  if (value.is_none()) return fallback;
  std::int64_t index = value.as_int();
  if (index < 0) index = index < -length ? -1 : index + length;
  const std::int64_t lowest = backwards ? -1 : 0;
  return std::clamp(index, lowest, backwards ? length - 1 : length);
}

Result<Walk> resolve(const SliceBounds& bounds, std::size_t size) {
  Walk walk;
  walk.step = bounds.step.is_none() ? 1 : bounds.step.as_int();
  if (walk.step == 0) return error("slice step cannot be zero");
  const auto length = static_cast<std::int64_t>(size);
  const bool backwards = walk.step < 0;
  walk.start = bound(bounds.start, backwards ? length - 1 : 0, length, backwards);
  const std::int64_t stop = bound(bounds.stop, backwards ? -1 : length, length, backwards);
  const std::int64_t distance = backwards ? walk.start - stop : stop - walk.start;
  // Steps beyond the length take one item; cutting them keeps the arithmetic in range.
  walk.step = std::clamp<std::int64_t>(walk.step, -length - 1, length + 1);
  const std::int64_t stride = backwards ? -walk.step : walk.step;
  if (distance > 0) walk.count = static_cast<std::size_t>((distance + stride - 1) / stride);
  return walk;
}

Result<Value> slice_string(Runtime& runtime, const StringObject& string, const Walk& walk) {
  VN_TRY(runtime.budget.spend_text(string.text.size()));
  const std::string_view text = string.text;
  if (walk.count == 0) return make_string(runtime, {});
  if (walk.step == 1) {
    const auto start = static_cast<std::size_t>(walk.start);
    const std::size_t from = string.ascii() ? start : byte_offset(text, start);
    const std::string_view rest = text.substr(from);
    return make_string(runtime, rest.substr(0, string.ascii() ? walk.count : byte_offset(rest, walk.count)));
  }
  Charge scratch;
  VN_TRY(scratch.grow(runtime.budget, text.size() * sizeof(char32_t)));
  const std::vector<char32_t> code_points = to_code_points(text);
  TextBuilder out(runtime);
  for (std::size_t i = 0; i < walk.count; ++i) {
    out.append_char(code_points[static_cast<std::size_t>(walk.start + static_cast<std::int64_t>(i) * walk.step)]);
  }
  return out.finish();
}

}  // namespace

Result<Value> get_attribute(Runtime& runtime, const Value& object, std::string_view name) {
  VN_TRY(runtime.budget.spend());
  if (object.is_undefined()) return error("{}", object.undefined_message());
  VN_ASSIGN(std::optional<Value> attribute, own_attribute(runtime, object, name));
  if (attribute) return *std::move(attribute);
  if (object.is(Kind::kDict)) {
    if (const Value* found = object.dict().find(name)) return *found;
  }
  return no_attribute(runtime, object, name);
}

Result<Value> get_item(Runtime& runtime, const Value& object, const Value& key) {
  VN_TRY(runtime.budget.spend());
  if (object.is_undefined()) return error("{}", object.undefined_message());
  VN_ASSIGN(std::optional<Value> item, own_item(runtime, object, key));
  if (item) return *std::move(item);
  if (key.is_string()) {
    VN_ASSIGN(std::optional<Value> attribute, own_attribute(runtime, object, key.text()));
    if (attribute) return *std::move(attribute);
    return no_attribute(runtime, object, key.text());
  }
  const std::string shown = key.is_int() ? fmt::format("{}", key.as_int()) : std::string(type_name(key));
  return make_undefined(runtime, fmt::format("{} has no element {}", described(object), shown));
}

Result<Value> get_slice(Runtime& runtime, const Value& object, const SliceBounds& bounds) {
  if (object.is_undefined()) return error("{}", object.undefined_message());
  // As for items, a wrong type makes the slice undefined.
  const auto usable = [](const Value& value) { return value.is_none() || value.is_int(); };
  const bool bounds_usable = usable(bounds.start) && usable(bounds.stop) && usable(bounds.step);
  if (!bounds_usable || !(object.is_string() || has_positions(object))) {
    return make_undefined(runtime, fmt::format("{} has no such slice", described(object)));
  }
  if (object.is_string()) {
    VN_ASSIGN(const Walk walk, resolve(bounds, object.string().length));
    VN_ASSIGN(const Value slice, slice_string(runtime, object.string(), walk));
    return is_markup(object) ? marked(runtime, slice) : slice;
  }
  const SequenceObject& sequence = object.sequence();
  VN_ASSIGN(const Walk walk, resolve(bounds, sequence.items.size()));
  ListBuilder list(runtime, sequence.type == SequenceType::kRange ? SequenceType::kList : sequence.type);
  for (std::size_t i = 0; i < walk.count && list.ok(); ++i) {
    list.push(sequence.items[static_cast<std::size_t>(walk.start + static_cast<std::int64_t>(i) * walk.step)]);
  }
  return list.finish();
}

}  // namespace vernier::jinja
