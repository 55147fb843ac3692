// The tests behind `is`.
#include "chat/jinja/builtins.h"
#include "chat/jinja/markup.h"
#include "chat/jinja/operators.h"
#include "chat/jinja/string_methods.h"

namespace vernier::jinja {
namespace {

using Predicate = bool (*)(const Value& value);

/// A test that only looks at the value.
template <Predicate predicate>
Result<Value> simple(Runtime&, const Value& self, const Args& args) {
  VN_TRY(bind(args, "test", {}));
  return Value::boolean(predicate(self));
}

bool is_defined(const Value& value) { return !value.is_undefined(); }
bool is_undefined(const Value& value) { return value.is_undefined(); }
bool is_none(const Value& value) { return value.is_none(); }
bool is_boolean(const Value& value) { return value.is(Kind::kBool); }
bool is_true(const Value& value) { return value.is(Kind::kBool) && value.as_bool(); }
bool is_false(const Value& value) { return value.is(Kind::kBool) && !value.as_bool(); }
bool is_integer(const Value& value) { return value.is(Kind::kInteger) || value.is(Kind::kBigInteger); }
bool is_float(const Value& value) { return value.is(Kind::kFloat); }
bool is_number(const Value& value) { return value.is_number(); }
bool is_string(const Value& value) { return value.is_string(); }
bool is_mapping(const Value& value) { return value.is(Kind::kDict); }
bool is_callable(const Value& value) {
  return value.is(Kind::kFunction) || value.is(Kind::kMacro) || value.is(Kind::kLoop);
}

/// Something with a length and subscripts: views of dicts have none.
bool is_sequence(const Value& value) {
  if (value.is(Kind::kSequence)) return value.sequence().type <= SequenceType::kRange;
  return value.is_string() || value.is(Kind::kDict) || value.is_undefined();
}

bool is_iterable(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
    case Kind::kString:
    case Kind::kSequence:
    case Kind::kDict:
    case Kind::kIterator:
    case Kind::kLoop: return true;
    default: return false;
  }
}

template <CompareOp op>
Result<Value> comparing(Runtime& runtime, const Value& self, const Args& args) {
  VN_ASSIGN(const Bound bound, bind(args, "test", {"other"}, 1));
  VN_ASSIGN(const bool result, compare(runtime, op, self, *bound[0]));
  return Value::boolean(result);
}

Result<Value> same_as(Runtime&, const Value& self, const Args& args) {
  VN_ASSIGN(const Bound bound, bind(args, "sameas", {"other"}, 1));
  return Value::boolean(self.same_as(*bound[0]));
}

/// self % divisor == rest
Result<Value> remainder_is(Runtime& runtime, const Value& self, const Value& divisor, std::int64_t rest) {
  if (self.is_string()) return error("not a number");
  VN_ASSIGN(const Value found, arithmetic(runtime, ArithmeticOp::kModulo, self, divisor));
  VN_ASSIGN(const bool result, equal(runtime, found, Value::integer(rest)));
  return Value::boolean(result);
}

Result<Value> odd(Runtime& runtime, const Value& self, const Args& args) {
  VN_TRY(bind(args, "odd", {}));
  return remainder_is(runtime, self, Value::integer(2), 1);
}
Result<Value> even(Runtime& runtime, const Value& self, const Args& args) {
  VN_TRY(bind(args, "even", {}));
  return remainder_is(runtime, self, Value::integer(2), 0);
}
Result<Value> divisible_by(Runtime& runtime, const Value& self, const Args& args) {
  VN_ASSIGN(const Bound bound, bind(args, "divisibleby", {"num"}, 1));
  return remainder_is(runtime, self, *bound[0], 0);
}

Result<Value> is_lower(Runtime& runtime, const Value& self, const Args& args) {
  VN_ASSIGN(const Value text, to_string(runtime, self));
  return find_string_method("islower")(runtime, text, args);
}
Result<Value> is_upper(Runtime& runtime, const Value& self, const Args& args) {
  VN_ASSIGN(const Value text, to_string(runtime, self));
  return find_string_method("isupper")(runtime, text, args);
}

template <Builtin (*find)(std::string_view)>
Result<Value> is_known(Runtime&, const Value& self, const Args& args) {
  VN_TRY(bind(args, "test", {}));
  return Value::boolean(self.is_string() && find(self.text()) != nullptr);
}

constexpr BuiltinEntry kTests[] = {
    {"!=", comparing<CompareOp::kNotEqual>},
    {"<", comparing<CompareOp::kLess>},
    {"<=", comparing<CompareOp::kLessEqual>},
    {"==", comparing<CompareOp::kEqual>},
    {">", comparing<CompareOp::kGreater>},
    {">=", comparing<CompareOp::kGreaterEqual>},
    {"boolean", simple<is_boolean>},
    {"callable", simple<is_callable>},
    {"defined", simple<is_defined>},
    {"divisibleby", divisible_by},
    {"eq", comparing<CompareOp::kEqual>},
    {"equalto", comparing<CompareOp::kEqual>},
    {"escaped", simple<is_markup>},
    {"even", even},
    {"false", simple<is_false>},
    {"filter", is_known<find_filter>},
    {"float", simple<is_float>},
    {"ge", comparing<CompareOp::kGreaterEqual>},
    {"greaterthan", comparing<CompareOp::kGreater>},
    {"gt", comparing<CompareOp::kGreater>},
    {"in", comparing<CompareOp::kIn>},
    {"integer", simple<is_integer>},
    {"iterable", simple<is_iterable>},
    {"le", comparing<CompareOp::kLessEqual>},
    {"lessthan", comparing<CompareOp::kLess>},
    {"lower", is_lower},
    {"lt", comparing<CompareOp::kLess>},
    {"mapping", simple<is_mapping>},
    {"ne", comparing<CompareOp::kNotEqual>},
    {"none", simple<is_none>},
    {"number", simple<is_number>},
    {"odd", odd},
    {"sameas", same_as},
    {"sequence", simple<is_sequence>},
    {"string", simple<is_string>},
    {"test", is_known<find_test>},
    {"true", simple<is_true>},
    {"undefined", simple<is_undefined>},
    {"upper", is_upper},
};

}  // namespace

Builtin find_test(std::string_view name) { return find_in(kTests, name); }

}  // namespace vernier::jinja
