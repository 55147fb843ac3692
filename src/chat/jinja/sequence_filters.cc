// Filters that work on sequences.
#include <algorithm>

#include "chat/jinja/builders.h"
#include "chat/jinja/builtins.h"
#include "chat/jinja/operators.h"
#include "chat/jinja/sorting.h"
#include "chat/jinja/text_ops.h"
#include "chat/jinja/value_text.h"

namespace vernier::jinja {
namespace {

/// The key by which an item is sorted or compared: the item or an attribute of it, strings in lower case unless told.
struct KeyRule {
  const Value* attribute = nullptr;
  bool case_sensitive = false;

  [[nodiscard]] Result<Value> fold(Runtime& runtime, const Value& key) const {
    if (case_sensitive || !key.is_string()) return key;
    VN_TRY(runtime.budget.spend_text(4 * key.text().size()));
    return make_string(runtime, to_lower(key.text()));
  }
  [[nodiscard]] Result<Value> key(Runtime& runtime, const Value& item) const {
    if (attribute == nullptr || attribute->is_none()) return fold(runtime, item);
    VN_ASSIGN(const Value found, attribute_path(runtime, item, *attribute));
    return fold(runtime, found);
  }
  /// As key(), where the attribute may be several with commas between: a tuple then.
  [[nodiscard]] Result<Value> sort_key(Runtime& runtime, const Value& item) const {
    if (attribute == nullptr || !attribute->is_string() || attribute->text().find(',') == std::string::npos) {
      return key(runtime, item);
    }
    ListBuilder keys(runtime, SequenceType::kTuple);
    const std::string_view text = attribute->text();
    for (std::size_t at = 0; at <= text.size();) {
      const std::size_t end = std::min(text.find(',', at), text.size());
      VN_ASSIGN(const Value path, make_string(runtime, text.substr(at, end - at)));
      VN_ASSIGN(const Value found, attribute_path(runtime, item, path));
      VN_ASSIGN(Value folded, fold(runtime, found));
      keys.push(std::move(folded));
      at = end + 1;
    }
    return keys.finish();
  }
};

/// Sorts by the keys that `rule` gives; `position` picks the key from pairs.
Result<Value> sorted(Runtime& runtime, const std::vector<Value>& items, const KeyRule& rule, bool reverse) {
  using Keyed = std::pair<Value, const Value*>;
  Charge scratch;
  VN_TRY(scratch.grow(runtime.budget, 2 * items.size() * sizeof(Keyed)));
  std::vector<Keyed> order;
  order.reserve(items.size());
  for (const Value& item : items) {
    VN_ASSIGN(Value key, rule.sort_key(runtime, item));
    order.emplace_back(std::move(key), &item);
  }
  VN_TRY(sort_checked(order, [&](const Keyed& a, const Keyed& b) {
    return reverse ? less(runtime, b.first, a.first) : less(runtime, a.first, b.first);
  }));
  ListBuilder list(runtime);
  for (const Keyed& entry : order) list.push(*entry.second);
  return list.finish();
}

Result<Value> sort_filter(Runtime& runtime, const Value& self, const Args& args) {
  VN_ASSIGN(const Bound bound, bind(args, "sort", {"reverse", "case_sensitive", "attribute"}));
  VN_ASSIGN(const Value items, iterate(runtime, self));
  return sorted(runtime, items.sequence().items, {bound[2], bound.flag(1)}, bound.flag(0));
}

Result<Value> dictsort(Runtime& runtime, const Value& self, const Args& args) {
  VN_ASSIGN(const Bound bound, bind(args, "dictsort", {"case_sensitive", "by", "reverse"}));
  VN_ASSIGN(const std::string_view by, string_argument(bound[1], "key", "by"));
  if (by != "key" && by != "value") return error("You can only sort by either \"key\" or \"value\"");
  if (self.is_undefined()) return error("{}", self.undefined_message());
  if (!self.is(Kind::kDict)) return error("'{} object' has no attribute 'items'", type_name(self));
  VN_ASSIGN(const Value pairs, find_method(self, "items")(runtime, self, {}));
  const Value position = Value::integer(by == "key" ? 0 : 1);
  return sorted(runtime, pairs.sequence().items, {&position, bound.flag(0)}, bound.flag(2));
}

Result<Value> unique(Runtime& runtime, const Value& self, const Args& args) {
  VN_ASSIGN(const Bound bound, bind(args, "unique", {"case_sensitive", "attribute"}));
  const KeyRule rule{bound[1], bound.flag(0)};
  VN_ASSIGN(const Value items, iterate(runtime, self));
  DictBuilder seen(runtime);
  for (const Value& item : items.sequence().items) {
    VN_ASSIGN(Value key, rule.key(runtime, item));
    VN_TRY(seen.add(std::move(key), item));
  }
  VN_ASSIGN(const Value dict, seen.finish());
  ListBuilder list(runtime);
  for (const auto& entry : dict.dict().entries) list.push(entry.second);
  VN_ASSIGN(Value result, list.finish());
  return make_iterator(runtime, std::move(result));
}

Result<Value> extreme(Runtime& runtime, const Value& self, const Args& args, bool largest) {
  VN_ASSIGN(const Bound bound, bind(args, largest ? "max" : "min", {"case_sensitive", "attribute"}));
  const KeyRule rule{bound[1], bound.flag(0)};
  VN_ASSIGN(const Value items, iterate(runtime, self));
  const Value* best = nullptr;
  Value best_key;
  for (const Value& item : items.sequence().items) {
    VN_ASSIGN(Value key, rule.key(runtime, item));
    bool better = best == nullptr;
    if (!better) {
      VN_ASSIGN(better, largest ? less(runtime, best_key, key) : less(runtime, key, best_key));
    }
    if (!better) continue;
    best = &item;
    best_key = std::move(key);
  }
  return best != nullptr ? Result<Value>(*best) : make_undefined(runtime, "No aggregated item, sequence was empty.");
}

Result<Value> max_filter(Runtime& runtime, const Value& self, const Args& args) {
  return extreme(runtime, self, args, true);
}
Result<Value> min_filter(Runtime& runtime, const Value& self, const Args& args) {
  return extreme(runtime, self, args, false);
}

Result<Value> sum_filter(Runtime& runtime, const Value& self, const Args& args) {
  VN_ASSIGN(const Bound bound, bind(args, "sum", {"attribute", "start"}));
  VN_ASSIGN(const Value items, iterate(runtime, self));
  Value total = bound[1] != nullptr ? *bound[1] : Value::integer(0);
  if (total.is_string()) return error("sum() can't sum strings");
  for (const Value& item : items.sequence().items) {
    Value part = item;
    if (bound[0] != nullptr && !bound[0]->is_none()) {
      VN_ASSIGN(part, attribute_path(runtime, item, *bound[0]));
    }
    VN_ASSIGN(total, arithmetic(runtime, ArithmeticOp::kAdd, total, part));
  }
  return total;
}

Result<Value> join_filter(Runtime& runtime, const Value& self, const Args& args) {
  VN_ASSIGN(const Bound bound, bind(args, "join", {"d", "attribute"}));
  VN_ASSIGN(const Value items, iterate(runtime, self));
  TextBuilder separator(runtime);
  if (bound[0] != nullptr) VN_TRY(append_str(runtime, separator, *bound[0]));
  TextBuilder out(runtime);
  bool first = true;
  for (const Value& item : items.sequence().items) {
    if (!first) out.append(separator.text());
    first = false;
    Value part = item;
    if (bound[1] != nullptr && !bound[1]->is_none()) {
      VN_ASSIGN(part, attribute_path(runtime, item, *bound[1]));
    }
    VN_TRY(append_str(runtime, out, part));
  }
  return out.finish();
}

Result<Value> first_filter(Runtime& runtime, const Value& self, const Args& args) {
  VN_TRY(bind(args, "first", {}));
  if (self.is(Kind::kIterator)) {
    IteratorObject& iterator = self.iterator();
    const auto& items = iterator.source.sequence().items;
    if (iterator.position < items.size()) return items[iterator.position++];
  } else if (self.is_string() && !self.text().empty()) {
    return get_item(runtime, self, Value::integer(0));
  } else {
    VN_ASSIGN(const Value items, iterate(runtime, self));
    if (!items.sequence().items.empty()) return items.sequence().items.front();
  }
  return make_undefined(runtime, "No first item, sequence was empty.");
}

Result<Value> last_filter(Runtime& runtime, const Value& self, const Args& args) {
  VN_TRY(bind(args, "last", {}));
  if (self.is(Kind::kIterator)) return error("'generator' object is not reversible");
  if (self.is_string() && !self.text().empty()) return get_item(runtime, self, Value::integer(-1));
  VN_ASSIGN(const Value items, iterate(runtime, self));
  if (!items.sequence().items.empty()) return items.sequence().items.back();
  return make_undefined(runtime, "No last item, sequence was empty.");
}

Result<Value> list_filter(Runtime& runtime, const Value& self, const Args& args) {
  VN_TRY(bind(args, "list", {}));
  VN_ASSIGN(const Value items, iterate(runtime, self));
  if (items.sequence().type == SequenceType::kList) return items;
  ListBuilder list(runtime);
  for (const Value& item : items.sequence().items) list.push(item);
  return list.finish();
}

Result<Value> reverse_filter(Runtime& runtime, const Value& self, const Args& args) {
  VN_TRY(bind(args, "reverse", {}));
  if (self.is_string()) {
    const Value none = Value::none();
    return get_slice(runtime, self, {none, none, Value::integer(-1)});
  }
  VN_ASSIGN(const Value items, iterate(runtime, self));
  ListBuilder list(runtime);
  for (auto item = items.sequence().items.rbegin(); item != items.sequence().items.rend(); ++item) list.push(*item);
  VN_ASSIGN(Value reversed, list.finish());
  return self.is(Kind::kIterator) ? Result<Value>(std::move(reversed)) : make_iterator(runtime, std::move(reversed));
}

Result<Value> items_filter(Runtime& runtime, const Value& self, const Args& args) {
  VN_TRY(bind(args, "items", {}));
  if (!self.is_undefined() && !self.is(Kind::kDict)) return error("Can only get item pairs from a mapping.");
  VN_ASSIGN(Value pairs, self.is_undefined() ? iterate(runtime, self) : find_method(self, "items")(runtime, self, {}));
  return make_iterator(runtime, std::move(pairs));
}

Result<Value> batch_filter(Runtime& runtime, const Value& self, const Args& args) {
  VN_ASSIGN(const Bound bound, bind(args, "batch", {"linecount", "fill_with"}, 1));
  VN_ASSIGN(const std::int64_t size, integer_argument(bound[0], 1, "linecount"));
  if (size < 1) return error("batch: linecount {} is below 1", size);
  VN_ASSIGN(const Value source, iterate(runtime, self));
  const auto& items = source.sequence().items;
  ListBuilder rows(runtime);
  for (std::size_t at = 0; at < items.size();) {
    ListBuilder row(runtime);
    for (std::int64_t i = 0; i < size && row.ok(); ++i) {
      if (at < items.size()) {
        row.push(items[at++]);
      } else if (bound[1] != nullptr && !bound[1]->is_none()) {
        row.push(*bound[1]);
      } else {
        break;
      }
    }
    VN_ASSIGN(Value done, row.finish());
    rows.push(std::move(done));
  }
  VN_ASSIGN(Value result, rows.finish());
  return make_iterator(runtime, std::move(result));
}

// --- map, select, reject ---------------------------------------------------------------------------------------------

/// The arguments behind the first `count`.
Result<Args> rest_of(Runtime& runtime, const Args& args, std::size_t count) {
  Args rest;
  VN_TRY(rest.pay(runtime.budget, args.positional.size() + args.keyword.size()));
  for (std::size_t i = count; i < args.positional.size(); ++i) rest.positional.push_back(args.positional[i]);
  rest.keyword = args.keyword;
  return rest;
}

Result<Value> map_attribute(Runtime& runtime, const Value& items, const Args& args) {
  VN_ASSIGN(const Bound bound, bind(args, "map", {"attribute", "default"}, 1));
  ListBuilder list(runtime);
  for (const Value& item : items.sequence().items) {
    VN_ASSIGN(Value value, attribute_path(runtime, item, *bound[0]));
    if (value.is_undefined() && bound[1] != nullptr && !bound[1]->is_none()) value = *bound[1];
    list.push(std::move(value));
  }
  return list.finish();
}

/// The items of a value; none of a false one, whatever its type: `none | select` is empty.
Result<Value> items_if_true(Runtime& runtime, const Value& self) {
  return iterate(runtime, truth(self) ? self : Value());
}

Result<Value> map_filter(Runtime& runtime, const Value& self, const Args& args) {
  VN_ASSIGN(const Value items, items_if_true(runtime, self));
  if (args.positional.empty()) {
    if (args.keyword.empty()) return error("map requires a filter argument");
    VN_ASSIGN(Value mapped, map_attribute(runtime, items, args));
    return make_iterator(runtime, std::move(mapped));
  }
  VN_ASSIGN(const std::string_view name, string_argument(args.positional.data(), {}, "filter name"));
  const Builtin filter = find_filter(name);
  if (filter == nullptr) return error("No filter named '{}'.", escape(name));
  const CallLevel level(runtime);  // map('map', 'map', ...) calls itself
  VN_TRY(level.status());
  VN_ASSIGN(const Args rest, rest_of(runtime, args, 1));
  ListBuilder list(runtime);
  for (const Value& item : items.sequence().items) {
    VN_TRY(runtime.budget.spend());
    VN_ASSIGN(Value value, filter(runtime, item, rest));
    list.push(std::move(value));
  }
  VN_ASSIGN(Value mapped, list.finish());
  return make_iterator(runtime, std::move(mapped));
}

/// select, reject (by the item) and selectattr, rejectattr (by an attribute of it).
template <bool keep, bool by_attribute>
Result<Value> choose(Runtime& runtime, const Value& self, const Args& args) {
  constexpr std::size_t kTest = by_attribute ? 1 : 0;
  if (by_attribute && args.positional.empty()) return error("Missing parameter for attribute name");
  Builtin test = nullptr;
  if (args.positional.size() > kTest) {
    VN_ASSIGN(const std::string_view name, string_argument(&args.positional[kTest], {}, "test name"));
    test = find_test(name);
    if (test == nullptr) return error("No test named '{}'.", escape(name));
  }
  VN_ASSIGN(const Args rest, rest_of(runtime, args, kTest + 1));
  VN_ASSIGN(const Value items, items_if_true(runtime, self));
  ListBuilder list(runtime);
  for (const Value& item : items.sequence().items) {
    VN_TRY(runtime.budget.spend());
    Value judged = item;
    if (by_attribute) {
      VN_ASSIGN(judged, attribute_path(runtime, item, args.positional.front()));
    }
    if (test != nullptr) {
      VN_ASSIGN(judged, test(runtime, judged, rest));
    }
    if (truth(judged) == keep) list.push(item);
  }
  VN_ASSIGN(Value chosen, list.finish());
  return make_iterator(runtime, std::move(chosen));
}

constexpr BuiltinEntry kFilters[] = {
    {"batch", batch_filter},
    {"dictsort", dictsort},
    {"first", first_filter},
    {"items", items_filter},
    {"join", join_filter},
    {"last", last_filter},
    {"list", list_filter},
    {"map", map_filter},
    {"max", max_filter},
    {"min", min_filter},
    {"reject", choose<false, false>},
    {"rejectattr", choose<false, true>},
    {"reverse", reverse_filter},
    {"select", choose<true, false>},
    {"selectattr", choose<true, true>},
    {"sort", sort_filter},
    {"sum", sum_filter},
    {"unique", unique},
};

}  // namespace

Builtin find_sequence_filter(std::string_view name) { return find_in(kFilters, name); }

}  // namespace vernier::jinja
