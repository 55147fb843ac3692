#include "chat/jinja/builders.h"

#include <algorithm>

#include "base/checked_math.h"
#include "base/utf8.h"
#include "chat/jinja/operators.h"
#include "chat/jinja/text_ops.h"

namespace vernier::jinja {

// --- text ------------------------------------------------------------------------------------------------------------

bool TextBuilder::make_room(std::size_t bytes) {
  if (!status_) return false;
  const auto needed = (CheckedU64(text_.size()) + bytes).value();
  if (needed && *needed <= charge_.bytes()) return true;
  // Growing in proportion keeps appending linear; while the text moves, old and new are both alive.
  const std::uint64_t wanted = needed ? std::max<std::uint64_t>(*needed, charge_.bytes() + charge_.bytes() / 2) : ~0ULL;
  status_ = charge_.grow(runtime_.budget, wanted - charge_.bytes());
  if (status_) status_ = runtime_.budget.spend_text(bytes);
  if (!status_) return false;
  text_.reserve(wanted);
  return true;
}

void TextBuilder::append_repeated(std::string_view text, std::size_t times) {
  const auto total = (CheckedU64(text.size()) * times).value();
  if (!make_room(total.value_or(~0ULL))) return;
  if (text.size() == 1) {
    text_.append(times, text.front());
  } else if (!text.empty()) {
    for (std::size_t i = 0; i < times; ++i) text_.append(text);
  }
}

void TextBuilder::append_char(char32_t code_point) {
  if (make_room(4)) append_utf8(text_, code_point);
}

void TextBuilder::pad(char32_t fill, std::size_t count) {
  std::string one;
  append_utf8(one, fill);
  append_repeated(one, count);
}

Result<Value> TextBuilder::finish() {
  if (!status_) return tl::unexpected(status_.error());
  VN_ASSIGN(auto object, make_object<StringObject>(runtime_));
  VN_TRY(runtime_.budget.spend_text(text_.size()));
  object->charge.absorb(std::move(charge_));
  object->text = std::move(text_);
  object->length = count_code_points(object->text);
  text_.clear();
  return Value(Kind::kString, std::move(object));
}

Result<std::string> TextBuilder::take() {
  if (!status_) return tl::unexpected(status_.error());
  return std::move(text_);
}

// --- lists -----------------------------------------------------------------------------------------------------------

void ListBuilder::push(Value value) {
  if (!status_) return;
  if (items_.size() == items_.capacity()) {
    const std::size_t grown = std::max<std::size_t>(4, items_.capacity() * 2);
    status_ = charge_.grow(runtime_.budget, (grown - items_.capacity()) * sizeof(Value));
    if (status_) status_ = runtime_.budget.spend(1 + items_.size() / 64);
    if (!status_) return;
    items_.reserve(grown);
  }
  depth_ = std::max(depth_, value.depth());
  items_.push_back(std::move(value));
}

void ListBuilder::push_string(std::string_view text) {
  if (!status_) return;
  auto value = make_string(runtime_, text);
  if (value) {
    push(*std::move(value));
  } else {
    status_ = tl::unexpected(std::move(value).error());
  }
}

Result<Value> ListBuilder::finish(std::string label) {
  if (!status_) return tl::unexpected(status_.error());
  VN_ASSIGN(auto object, make_object<SequenceObject>(runtime_, label.size(), depth_ + 1));
  object->charge.absorb(std::move(charge_));
  object->type = type_;
  object->items = std::move(items_);
  object->label = std::move(label);
  return Value(Kind::kSequence, std::move(object));
}

// --- dicts -----------------------------------------------------------------------------------------------------------

namespace {

constexpr std::size_t kIndexFrom = 16;  // smaller dicts are searched linearly

bool hashable(const Value& value) {
  if (value.is(Kind::kDict)) return false;
  if (!value.is(Kind::kSequence)) return true;
  if (value.sequence().type == SequenceType::kRange) return true;
  if (value.sequence().type != SequenceType::kTuple) return false;
  return std::all_of(value.sequence().items.begin(), value.sequence().items.end(), hashable);
}

}  // namespace

Result<const DictObject::Entry*> find_entry(Runtime& runtime, const DictObject& dict, const Value& key) {
  if (!hashable(key)) return error("unhashable type: '{}'", type_name(key));
  if (key.is_string() && !dict.index.empty()) {
    const auto found = dict.index.find(key.text());
    return found == dict.index.end() ? nullptr : &dict.entries[found->second];
  }
  VN_TRY(runtime.budget.spend(1 + dict.entries.size() / 64));
  for (const DictObject::Entry& entry : dict.entries) {
    VN_ASSIGN(const bool same, equal(runtime, entry.first, key));
    if (same) return &entry;
  }
  return nullptr;
}

Status DictBuilder::insert(Value key, Value value) {
  if (!dict_) {
    VN_ASSIGN(dict_, make_object<DictObject>(runtime_));
  }
  VN_ASSIGN(const DictObject::Entry* found, find_entry(runtime_, *dict_, key));
  if (found != nullptr) {
    depth_ = std::max(depth_, value.depth());
    dict_->entries[static_cast<std::size_t>(found - dict_->entries.data())].second = std::move(value);
    return {};
  }
  return append(std::move(key), std::move(value));
}

Status DictBuilder::append(Value key, Value value) {
  depth_ = std::max({depth_, key.depth(), value.depth()});
  constexpr std::size_t kIndexNode = 64;  // memory of one entry of the index
  VN_TRY(charge_.grow(runtime_.budget, 2 * sizeof(DictObject::Entry) + kIndexNode));
  dict_->entries.emplace_back(std::move(key), std::move(value));
  const std::size_t size = dict_->entries.size();
  if (size < kIndexFrom) return {};
  // The views point into shared strings that the entries keep alive.
  for (std::size_t i = size == kIndexFrom ? 0 : size - 1; i < size; ++i) {
    if (dict_->entries[i].first.is_string()) dict_->index.emplace(dict_->entries[i].first.text(), i);
  }
  return {};
}

Result<bool> DictBuilder::add(Value key, Value value) {
  VN_TRY(status_);
  if (!dict_) {
    VN_ASSIGN(dict_, make_object<DictObject>(runtime_));
  }
  VN_ASSIGN(const DictObject::Entry* found, find_entry(runtime_, *dict_, key));
  if (found != nullptr) return false;
  VN_TRY(append(std::move(key), std::move(value)));
  return true;
}

void DictBuilder::set(Value key, Value value) {
  if (status_) status_ = insert(std::move(key), std::move(value));
}

void DictBuilder::set_string(std::string_view key, Value value) {
  if (!status_) return;
  auto name = make_string(runtime_, key);
  if (name) {
    set(*std::move(name), std::move(value));
  } else {
    status_ = tl::unexpected(std::move(name).error());
  }
}

Result<Value> DictBuilder::finish() {
  if (!status_) return tl::unexpected(status_.error());
  if (depth_ + 1 > runtime_.max_nesting()) return error("values nested deeper than {} levels", runtime_.max_nesting());
  if (!dict_) {
    VN_ASSIGN(dict_, make_object<DictObject>(runtime_));
  }
  dict_->charge.absorb(std::move(charge_));
  dict_->depth = depth_ + 1;
  return Value(Kind::kDict, std::move(dict_));
}

// --- iteration -------------------------------------------------------------------------------------------------------

Result<Value> iterate(Runtime& runtime, const Value& value) {
  VN_TRY(runtime.budget.spend());
  if (value.is(Kind::kSequence)) return value;
  ListBuilder list(runtime);
  switch (value.kind()) {
    case Kind::kUndefined: break;
    case Kind::kString:
      for (std::size_t at = 0; at < value.text().size() && list.ok();) {
        const std::size_t size = decode_utf8(value.text(), at).size;
        list.push_string(std::string_view(value.text()).substr(at, size));
        at += size;
      }
      break;
    case Kind::kDict:
      for (const auto& entry : value.dict().entries) list.push(entry.first);
      break;
    case Kind::kIterator: {
      IteratorObject& iterator = value.iterator();
      const auto& items = iterator.source.sequence().items;
      for (; iterator.position < items.size(); ++iterator.position) list.push(items[iterator.position]);
      break;
    }
    default: return error("'{}' object is not iterable", type_name(value));
  }
  return list.finish();
}

// --- JSON ------------------------------------------------------------------------------------------------------------

namespace {

Result<Value> convert(Runtime& runtime, const Json& json, std::size_t level) {
  if (level > runtime.max_nesting()) return error("values nested deeper than {} levels", runtime.max_nesting());
  if (json.is_null()) return Value::none();
  if (json.is_bool()) return Value::boolean(json.as_bool());
  if (json.is_big_unsigned()) return Value::big_integer(json.as_uint64());
  if (json.is_integer()) return Value::integer(json.as_int64());
  if (json.is_double()) return Value::real(json.as_double());
  if (json.is_string()) return make_string(runtime, json.as_string());
  if (json.is_array()) {
    ListBuilder list(runtime);
    for (const Json& item : json.as_array()) {
      VN_ASSIGN(Value value, convert(runtime, item, level + 1));
      list.push(std::move(value));
    }
    return list.finish();
  }
  DictBuilder dict(runtime);
  for (const auto& [key, item] : json.as_object()) {
    VN_ASSIGN(Value value, convert(runtime, item, level + 1));
    dict.set_string(key, std::move(value));
  }
  return dict.finish();
}

}  // namespace

Result<Value> from_json(Runtime& runtime, const Json& json) { return convert(runtime, json, 0); }

}  // namespace vernier::jinja
