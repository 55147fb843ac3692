// Values of the template language, with Python's types. Strings, lists and dicts are immutable and shared; only
// namespaces, loops and iterators change. Nothing here reaches an object of the host.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "chat/jinja/budget.h"

namespace vernier::jinja {

enum class Kind : std::uint8_t {
  kUndefined,
  kNone,
  kBool,
  kInteger,
  kBigInteger,  // a JSON integer above the int64 range: prints and compares, but isn't computed with
  kFloat,
  kString,
  kSequence,  // list, tuple, range or a view of a dict
  kDict,
  kIterator,  // what map(), select() and the like give: can be walked once
  kNamespace,
  kLoop,
  kFunction,  // a built-in function or a bound method
  kMacro,
};

/// What is shared between values. `depth` counts containers inside each other; it is limited at construction, so that
/// neither printing nor destruction can recurse further.
struct Object {
  Object() = default;
  Object(const Object&) = delete;
  Object& operator=(const Object&) = delete;
  virtual ~Object() = default;
  Charge charge;
  std::size_t depth = 0;
};

struct StringObject;
struct SequenceObject;
struct DictObject;
struct IteratorObject;
struct NamespaceObject;
struct LoopObject;
struct FunctionObject;
struct MacroObject;

class Value {
 public:
  Value() = default;  // undefined without a message
  static Value none() { return Value(Kind::kNone); }
  static Value boolean(bool value) {
    Value result(Kind::kBool);
    result.integer_ = value ? 1 : 0;
    return result;
  }
  static Value integer(std::int64_t value) {
    Value result(Kind::kInteger);
    result.integer_ = value;
    return result;
  }
  static Value big_integer(std::uint64_t value) {
    Value result(Kind::kBigInteger);
    result.integer_ = static_cast<std::int64_t>(value);
    return result;
  }
  static Value real(double value) {
    Value result(Kind::kFloat);
    result.real_ = value;
    return result;
  }
  Value(Kind kind, std::shared_ptr<Object> object) : kind_(kind), object_(std::move(object)) {}

  [[nodiscard]] Kind kind() const { return kind_; }
  [[nodiscard]] bool is(Kind kind) const { return kind_ == kind; }
  [[nodiscard]] bool is_undefined() const { return kind_ == Kind::kUndefined; }
  [[nodiscard]] bool is_none() const { return kind_ == Kind::kNone; }
  [[nodiscard]] bool is_string() const { return kind_ == Kind::kString; }
  /// Bool or integer: Python's int.
  [[nodiscard]] bool is_int() const { return kind_ == Kind::kBool || kind_ == Kind::kInteger; }
  [[nodiscard]] bool is_number() const { return is_int() || kind_ == Kind::kFloat || kind_ == Kind::kBigInteger; }

  // Unchecked reads: call only for the matching kind.
  [[nodiscard]] bool as_bool() const { return integer_ != 0; }
  [[nodiscard]] std::int64_t as_int() const { return integer_; }
  [[nodiscard]] std::uint64_t as_big() const { return static_cast<std::uint64_t>(integer_); }
  /// Any number as a double.
  [[nodiscard]] double as_real() const {
    if (kind_ == Kind::kFloat) return real_;
    return kind_ == Kind::kBigInteger ? static_cast<double>(as_big()) : static_cast<double>(integer_);
  }
  [[nodiscard]] const std::string& text() const;  // kString
  [[nodiscard]] const StringObject& string() const;
  [[nodiscard]] const SequenceObject& sequence() const;
  [[nodiscard]] const DictObject& dict() const;
  [[nodiscard]] IteratorObject& iterator() const;
  [[nodiscard]] NamespaceObject& name_space() const;
  [[nodiscard]] LoopObject& loop() const;
  [[nodiscard]] const FunctionObject& function() const;
  [[nodiscard]] const MacroObject& macro() const;

  [[nodiscard]] std::size_t depth() const { return object_ ? object_->depth : 0; }
  /// True when both are the same object (or the same plain value).
  [[nodiscard]] bool same_as(const Value& other) const {
    return kind_ == other.kind_ && object_ == other.object_ && (object_ != nullptr || integer_ == other.integer_);
  }
  /// What is wrong with using this undefined value: "'x' is undefined".
  [[nodiscard]] std::string undefined_message() const;
  [[nodiscard]] const std::shared_ptr<Object>& object() const { return object_; }

 private:
  explicit Value(Kind kind) : kind_(kind) {}

  Kind kind_ = Kind::kUndefined;
  union {
    std::int64_t integer_ = 0;
    double real_;
  };
  std::shared_ptr<Object> object_;
};

struct StringObject : Object {
  std::string text;        // well-formed UTF-8
  std::size_t length = 0;  // in code points
  bool markup = false;     // see markup.h
  [[nodiscard]] bool ascii() const { return length == text.size(); }
};

enum class SequenceType : std::uint8_t { kList, kTuple, kRange, kKeys, kValues, kItems };

struct SequenceObject : Object {
  SequenceType type = SequenceType::kList;
  std::vector<Value> items;
  std::string label;  // how a range prints: "range(0, 3)"
};

struct DictObject : Object {
  using Entry = std::pair<Value, Value>;
  std::vector<Entry> entries;                               // in order of insertion
  std::unordered_map<std::string_view, std::size_t> index;  // string keys of larger dicts
  /// The value under a string key, or null.
  [[nodiscard]] const Value* find(std::string_view key) const;
};

struct IteratorObject : Object {
  Value source;  // a sequence
  std::size_t position = 0;
};

/// Objects that may come to hold themselves. The interpreter empties them at the end of a render.
struct CyclicObject : Object {
  virtual void clear() = 0;
};

struct Runtime;

struct NamespaceObject : CyclicObject {
  std::vector<std::pair<std::string, Value>> members;
  [[nodiscard]] const Value* find(std::string_view name) const;
  /// Sets or adds a member, paying for a new one.
  [[nodiscard]] Status set(Runtime& runtime, std::string_view name, Value value);
  void clear() override { members.clear(); }
};

struct ForNode;
struct MacroNode;
struct Scope;

struct LoopObject : CyclicObject {
  Value items;  // a sequence
  std::size_t index0 = 0;
  std::size_t depth0 = 0;
  Value last_changed;  // a tuple once loop.changed() was called
  const ForNode* node = nullptr;
  std::shared_ptr<Scope> scope;  // around the loop: for recursion only
  void clear() override {
    last_changed = Value();
    scope.reset();
  }
};

/// Arguments of a call, evaluated.
struct Args {
  std::vector<Value> positional;
  std::vector<std::pair<std::string_view, Value>> keyword;  // names live in the compiled template or in `held`
  std::vector<Value> held;                                  // dicts whose keys `keyword` refers to
  Charge charge;
  /// Pays for `count` more arguments.
  [[nodiscard]] Status pay(Budget& budget, std::size_t count) {
    VN_TRY(budget.spend(1 + count / 16));
    return charge.grow(budget, count * 2 * (sizeof(Value) + sizeof(std::string_view)));
  }
};

/// What built-in functions, filters, tests and methods may use.
struct Runtime {
  explicit Runtime(const TemplateLimits& limits) : budget(limits) {}
  Budget budget;
  TemplateTime now;
  std::vector<std::shared_ptr<CyclicObject>> cyclic;
  std::size_t level = 0;  // of evaluations inside each other: see CallLevel
  [[nodiscard]] std::size_t max_nesting() const { return budget.limits().max_nesting; }
};

/// Counts evaluations inside each other, so that no template can exhaust the stack.
class CallLevel {
 public:
  explicit CallLevel(Runtime& runtime) : runtime_(runtime) { ++runtime_.level; }
  CallLevel(const CallLevel&) = delete;
  CallLevel& operator=(const CallLevel&) = delete;
  ~CallLevel() { --runtime_.level; }
  [[nodiscard]] Status status() const {
    constexpr std::size_t kMaxLevel = 600;
    if (runtime_.level <= kMaxLevel) return {};
    return fail(ErrorCode::kInvalidArgument, "macros and expressions are nested deeper than {} levels", kMaxLevel);
  }

 private:
  Runtime& runtime_;
};

/// A filter, test, method or function. `self` is what stands left of it (undefined for functions).
using Builtin = Result<Value> (*)(Runtime& runtime, const Value& self, const Args& args);

struct FunctionObject : Object {
  std::string_view name;
  Builtin call = nullptr;
  Value self;
};

struct MacroObject : Object {
  const MacroNode* node = nullptr;
  std::shared_ptr<Scope> scope;  // where it was defined
};

/// Python's name of the type: "str", "NoneType", ...
[[nodiscard]] std::string_view type_name(const Value& value);
/// Python's bool().
[[nodiscard]] bool truth(const Value& value);

/// The error of a template's own making: a wrong type, an undefined value, ...
template <class... Arguments>
[[nodiscard]] tl::unexpected<Error> error(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
  return fail(ErrorCode::kInvalidArgument, format, std::forward<Arguments>(arguments)...);
}

/// A string; ill-formed UTF-8 becomes U+FFFD.
[[nodiscard]] Result<Value> make_string(Runtime& runtime, std::string_view text);
/// A string that belongs to the compiled template and isn't charged.
[[nodiscard]] Value make_constant(std::string text);
[[nodiscard]] Result<Value> make_undefined(Runtime& runtime, std::string message);
/// An undefined value of the compiled template.
[[nodiscard]] Value make_constant_undefined(std::string message);
[[nodiscard]] Result<Value> make_iterator(Runtime& runtime, Value sequence);
[[nodiscard]] Result<Value> make_method(Runtime& runtime, std::string_view name, Builtin call, Value self);
[[nodiscard]] Value make_function(std::string_view name, Builtin call);

/// Allocates an Object, charging its size plus `extra` bytes and checking `depth`.
template <class T>
[[nodiscard]] Result<std::shared_ptr<T>> make_object(Runtime& runtime, std::size_t extra = 0, std::size_t depth = 0) {
  if (depth > runtime.max_nesting()) return error("values nested deeper than {} levels", runtime.max_nesting());
  constexpr std::size_t kHeader = 32;  // of the allocation itself
  Charge charge;
  VN_TRY(charge.grow(runtime.budget, sizeof(T) + kHeader + extra));
  auto object = std::make_shared<T>();
  object->charge = std::move(charge);
  object->depth = depth;
  return object;
}

}  // namespace vernier::jinja
