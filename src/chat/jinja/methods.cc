// Methods of dicts, lists and loops, and the dispatch to those of strings.
#include <algorithm>
#include <array>

#include "chat/jinja/builders.h"
#include "chat/jinja/builtins.h"
#include "chat/jinja/operators.h"
#include "chat/jinja/string_methods.h"

namespace vernier::jinja {
namespace {

// --- dicts -----------------------------------------------------------------------------------------------------------

Result<Value> dict_get(Runtime& runtime, const Value& self, const Args& args) {
  VN_ASSIGN(const Bound bound, bind(args, "get", {"key", "default"}, 1));
  VN_ASSIGN(const DictObject::Entry* entry, find_entry(runtime, self.dict(), *bound[0]));
  if (entry != nullptr) return entry->second;
  return bound[1] != nullptr ? *bound[1] : Value::none();
}

Result<Value> dict_keys(Runtime& runtime, const Value& self, const Args& args) {
  VN_TRY(bind(args, "keys", {}));
  ListBuilder list(runtime, SequenceType::kKeys);
  for (const auto& entry : self.dict().entries) list.push(entry.first);
  return list.finish();
}

Result<Value> dict_values(Runtime& runtime, const Value& self, const Args& args) {
  VN_TRY(bind(args, "values", {}));
  ListBuilder list(runtime, SequenceType::kValues);
  for (const auto& entry : self.dict().entries) list.push(entry.second);
  return list.finish();
}

Result<Value> dict_items(Runtime& runtime, const Value& self, const Args& args) {
  VN_TRY(bind(args, "items", {}));
  ListBuilder list(runtime, SequenceType::kItems);
  for (const auto& entry : self.dict().entries) {
    ListBuilder pair(runtime, SequenceType::kTuple);
    pair.push(entry.first);
    pair.push(entry.second);
    VN_ASSIGN(Value item, pair.finish());
    list.push(std::move(item));
  }
  return list.finish();
}

/// copy() of a dict or list: they never change, so the copy may be the thing itself.
Result<Value> copy(Runtime&, const Value& self, const Args& args) {
  VN_TRY(bind(args, "copy", {}));
  return self;
}

constexpr BuiltinEntry kDictMethods[] = {
    {"copy", copy}, {"get", dict_get}, {"items", dict_items}, {"keys", dict_keys}, {"values", dict_values}};

// --- lists -----------------------------------------------------------------------------------------------------------

Result<Value> list_count(Runtime& runtime, const Value& self, const Args& args) {
  VN_ASSIGN(const Bound bound, bind(args, "count", {"value"}, 1));
  std::int64_t count = 0;
  for (const Value& item : self.sequence().items) {
    VN_ASSIGN(const bool same, equal(runtime, item, *bound[0]));
    if (same) ++count;
  }
  return Value::integer(count);
}

Result<Value> list_index(Runtime& runtime, const Value& self, const Args& args) {
  VN_ASSIGN(const Bound bound, bind(args, "index", {"value"}, 1));
  const auto& items = self.sequence().items;
  for (std::size_t i = 0; i < items.size(); ++i) {
    VN_ASSIGN(const bool same, equal(runtime, items[i], *bound[0]));
    if (same) return Value::integer(static_cast<std::int64_t>(i));
  }
  return error("value is not in {}", type_name(self));
}

constexpr BuiltinEntry kListMethods[] = {{"copy", copy}, {"count", list_count}, {"index", list_index}};

// --- loops -----------------------------------------------------------------------------------------------------------

Result<Value> loop_cycle(Runtime&, const Value& self, const Args& args) {
  if (args.positional.empty()) return error("no items for cycling given");
  return args.positional[self.loop().index0 % args.positional.size()];
}

Result<Value> loop_changed(Runtime& runtime, const Value& self, const Args& args) {
  ListBuilder list(runtime, SequenceType::kTuple);
  for (const Value& value : args.positional) list.push(value);
  VN_ASSIGN(Value now, list.finish());
  LoopObject& loop = self.loop();
  VN_ASSIGN(const bool same, equal(runtime, loop.last_changed, now));
  if (same) return Value::boolean(false);
  if (loop.last_changed.is_undefined()) {
    // From now on the loop may hold itself, so someone has to empty it at the end.
    VN_TRY(runtime.budget.charge(sizeof(runtime.cyclic[0])));
    runtime.cyclic.push_back(std::static_pointer_cast<CyclicObject>(self.object()));
  }
  loop.last_changed = std::move(now);
  return Value::boolean(true);
}

constexpr BuiltinEntry kLoopMethods[] = {{"changed", loop_changed}, {"cycle", loop_cycle}};

}  // namespace

Builtin find_method(const Value& object, std::string_view name) {
  switch (object.kind()) {
    case Kind::kString: return find_string_method(name);
    case Kind::kDict: return find_in(kDictMethods, name);
    case Kind::kLoop: return find_in(kLoopMethods, name);
    case Kind::kSequence:
      if (object.sequence().type > SequenceType::kRange) return nullptr;
      if (name == "copy" && object.sequence().type != SequenceType::kList) return nullptr;
      return find_in(kListMethods, name);
    default: return nullptr;
  }
}

bool is_mutating_method(const Value& object, std::string_view name) {
  static constexpr std::array<std::string_view, 8> kList = {"append", "clear",  "extend",  "insert",
                                                            "pop",    "remove", "reverse", "sort"};
  static constexpr std::array<std::string_view, 5> kDict = {"clear", "pop", "popitem", "setdefault", "update"};
  if (object.is(Kind::kDict)) return std::find(kDict.begin(), kDict.end(), name) != kDict.end();
  return object.is(Kind::kSequence) && object.sequence().type == SequenceType::kList &&
         std::find(kList.begin(), kList.end(), name) != kList.end();
}

}  // namespace vernier::jinja
