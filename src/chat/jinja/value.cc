#include "chat/jinja/value.h"

#include "base/utf8.h"
#include "chat/jinja/text_ops.h"

namespace vernier::jinja {
namespace {

/// An undefined value's object: why using it is an error.
struct UndefinedObject : Object {
  std::string message;
};

}  // namespace

const StringObject& Value::string() const { return static_cast<const StringObject&>(*object_); }
const std::string& Value::text() const { return string().text; }
const SequenceObject& Value::sequence() const { return static_cast<const SequenceObject&>(*object_); }
const DictObject& Value::dict() const { return static_cast<const DictObject&>(*object_); }
IteratorObject& Value::iterator() const { return static_cast<IteratorObject&>(*object_); }
NamespaceObject& Value::name_space() const { return static_cast<NamespaceObject&>(*object_); }
LoopObject& Value::loop() const { return static_cast<LoopObject&>(*object_); }
const FunctionObject& Value::function() const { return static_cast<const FunctionObject&>(*object_); }
const MacroObject& Value::macro() const { return static_cast<const MacroObject&>(*object_); }

std::string Value::undefined_message() const {
  return object_ ? static_cast<const UndefinedObject&>(*object_).message : "value is undefined";
}

const Value* DictObject::find(std::string_view key) const {
  if (!index.empty()) {
    const auto found = index.find(key);
    return found == index.end() ? nullptr : &entries[found->second].second;
  }
  for (const Entry& entry : entries) {
    if (entry.first.is_string() && entry.first.text() == key) return &entry.second;
  }
  return nullptr;
}

const Value* NamespaceObject::find(std::string_view name) const {
  for (const auto& [key, value] : members) {
    if (key == name) return &value;
  }
  return nullptr;
}

Status NamespaceObject::set(Runtime& runtime, std::string_view name, Value value) {
  VN_TRY(runtime.budget.spend(1 + members.size() / 16));
  for (auto& [key, member] : members) {
    if (key != name) continue;
    member = std::move(value);
    return {};
  }
  VN_TRY(charge.grow(runtime.budget, 2 * sizeof(members[0]) + name.size()));
  members.emplace_back(name, std::move(value));
  return {};
}

std::string_view type_name(const Value& value) {
  static constexpr std::string_view kSequences[] = {"list", "tuple", "range", "dict_keys", "dict_values", "dict_items"};
  switch (value.kind()) {
    case Kind::kUndefined: return "Undefined";
    case Kind::kNone: return "NoneType";
    case Kind::kBool: return "bool";
    case Kind::kInteger:
    case Kind::kBigInteger: return "int";
    case Kind::kFloat: return "float";
    case Kind::kString: return "str";
    case Kind::kSequence: return kSequences[static_cast<std::size_t>(value.sequence().type)];
    case Kind::kDict: return "dict";
    case Kind::kIterator: return "generator";
    case Kind::kNamespace: return "Namespace";
    case Kind::kLoop: return "LoopContext";
    case Kind::kFunction: return "function";
    case Kind::kMacro: return "Macro";
  }
  return "object";
}

bool truth(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
    case Kind::kNone: return false;
    case Kind::kBool:
    case Kind::kInteger: return value.as_int() != 0;
    case Kind::kFloat: return value.as_real() != 0.0;
    case Kind::kString: return !value.text().empty();
    case Kind::kSequence: return !value.sequence().items.empty();
    case Kind::kDict: return !value.dict().entries.empty();
    case Kind::kLoop: return !value.loop().items.sequence().items.empty();
    default: return true;
  }
}

Value make_constant(std::string text) {
  auto object = std::make_shared<StringObject>();
  object->text = is_valid_utf8(text) ? std::move(text) : replace_invalid_utf8(text);
  object->length = count_code_points(object->text);
  return {Kind::kString, std::move(object)};
}

Result<Value> make_string(Runtime& runtime, std::string_view text) {
  VN_TRY(runtime.budget.spend_text(text.size()));
  // A replacement character takes three bytes, so three times the size is enough for any input.
  const bool valid = is_valid_utf8(text);
  VN_ASSIGN(auto object, make_object<StringObject>(runtime, valid ? text.size() : 3 * text.size()));
  object->text = valid ? std::string(text) : replace_invalid_utf8(text);
  object->length = count_code_points(object->text);
  return Value(Kind::kString, std::move(object));
}

Value make_constant_undefined(std::string message) {
  auto object = std::make_shared<UndefinedObject>();
  object->message = std::move(message);
  return {Kind::kUndefined, std::move(object)};
}

Result<Value> make_undefined(Runtime& runtime, std::string message) {
  VN_ASSIGN(auto object, make_object<UndefinedObject>(runtime, message.size()));
  object->message = std::move(message);
  return Value(Kind::kUndefined, std::move(object));
}

Result<Value> make_iterator(Runtime& runtime, Value sequence) {
  VN_ASSIGN(auto object, make_object<IteratorObject>(runtime, 0, sequence.depth() + 1));
  object->source = std::move(sequence);
  return Value(Kind::kIterator, std::move(object));
}

Result<Value> make_method(Runtime& runtime, std::string_view name, Builtin call, Value self) {
  VN_ASSIGN(auto object, make_object<FunctionObject>(runtime, 0, self.depth() + 1));
  object->name = name;
  object->call = call;
  object->self = std::move(self);
  return Value(Kind::kFunction, std::move(object));
}

Value make_function(std::string_view name, Builtin call) {
  auto object = std::make_shared<FunctionObject>();
  object->name = name;
  object->call = call;
  return {Kind::kFunction, std::move(object)};
}

}  // namespace vernier::jinja
