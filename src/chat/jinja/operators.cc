#include "chat/jinja/operators.h"

#include <algorithm>
#include <cmath>

#include "chat/jinja/builders.h"
#include "chat/jinja/format.h"
#include "chat/jinja/markup.h"

namespace vernier::jinja {
namespace {

constexpr std::string_view kSymbols[] = {"+", "-", "*", "/", "//", "%", "** or pow()"};

tl::unexpected<Error> unsupported(ArithmeticOp op, const Value& left, const Value& right) {
  return error("unsupported operand type(s) for {}: '{}' and '{}'", kSymbols[static_cast<std::size_t>(op)],
               type_name(left), type_name(right));
}

Result<Value> integer_power(std::int64_t base, std::int64_t exponent) {
  std::int64_t result = 1;
  bool overflow = false;
  while (exponent > 0 && !overflow) {
    if (exponent % 2 != 0) overflow = __builtin_mul_overflow(result, base, &result);
    exponent /= 2;
    if (exponent > 0 && __builtin_mul_overflow(base, base, &base)) {
      // The square is needed below, so the result overflows too (|base| > 1 here).
      overflow = true;
    }
  }
  if (overflow) return error("integer result beyond 64 bits");
  return Value::integer(result);
}

Result<Value> integer_arithmetic(ArithmeticOp op, std::int64_t a, std::int64_t b) {
  std::int64_t result = 0;
  bool overflow = false;
  if (b == 0 && (op == ArithmeticOp::kDivide || op == ArithmeticOp::kFloorDivide || op == ArithmeticOp::kModulo)) {
    return error("division by zero");
  }
  switch (op) {
    case ArithmeticOp::kAdd: overflow = __builtin_add_overflow(a, b, &result); break;
    case ArithmeticOp::kSubtract: overflow = __builtin_sub_overflow(a, b, &result); break;
    case ArithmeticOp::kMultiply: overflow = __builtin_mul_overflow(a, b, &result); break;
    case ArithmeticOp::kDivide:
      return Value::real(static_cast<double>(static_cast<long double>(a) / static_cast<long double>(b)));
    case ArithmeticOp::kFloorDivide:
      if (b == -1) {
        overflow = __builtin_sub_overflow(std::int64_t{0}, a, &result);
      } else {
        result = a / b - (a % b != 0 && (a < 0) != (b < 0) ? 1 : 0);
      }
      break;
    case ArithmeticOp::kModulo:
      result = b == -1 ? 0 : a % b;
      if (result != 0 && (result < 0) != (b < 0)) result += b;
      break;
    case ArithmeticOp::kPower:
      if (b >= 0) return integer_power(a, b);
      if (a == 0) return error("0.0 cannot be raised to a negative power");
      return Value::real(std::pow(static_cast<double>(a), static_cast<double>(b)));
  }
  if (overflow) return error("integer result beyond 64 bits");
  return Value::integer(result);
}

double float_modulo(double a, double b) {
  const double rest = std::fmod(a, b);
  if (rest == 0.0) return std::copysign(0.0, b);
  return (rest < 0.0) != (b < 0.0) ? rest + b : rest;
}

Result<Value> float_arithmetic(ArithmeticOp op, double a, double b) {
  switch (op) {
    case ArithmeticOp::kAdd: return Value::real(a + b);
    case ArithmeticOp::kSubtract: return Value::real(a - b);
    case ArithmeticOp::kMultiply: return Value::real(a * b);
    case ArithmeticOp::kPower: {
      if (a == 0.0 && b < 0.0) return error("0.0 cannot be raised to a negative power");
      const double power = std::pow(a, b);
      if (std::isinf(power) && std::isfinite(a) && std::isfinite(b)) return error("numerical result out of range");
      if (std::isnan(power) && !std::isnan(a) && !std::isnan(b)) return error("complex numbers are not supported");
      return Value::real(power);
    }
    default: break;
  }
  if (b == 0.0) return error("float division by zero");
  if (op == ArithmeticOp::kDivide) return Value::real(a / b);
  const double modulo = float_modulo(a, b);
  if (op == ArithmeticOp::kModulo) return Value::real(modulo);
  const double quotient = (a - modulo) / b;
  const double floor = std::floor(quotient);
  return Value::real(quotient - floor > 0.5 ? floor + 1.0 : floor);
}

/// A string or list times an integer.
Result<Value> repeat(Runtime& runtime, const Value& value, std::int64_t times) {
  const std::size_t count = times > 0 ? static_cast<std::size_t>(times) : 0;
  if (value.is_string()) {
    TextBuilder text(runtime);
    text.append_repeated(value.text(), count);
    VN_ASSIGN(const Value repeated, text.finish());
    return is_markup(value) ? marked(runtime, repeated) : repeated;
  }
  ListBuilder list(runtime, value.sequence().type);
  if (value.sequence().items.empty()) return list.finish();
  for (std::size_t i = 0; i < count && list.ok(); ++i) {
    VN_TRY(runtime.budget.spend(1 + value.sequence().items.size() / 16));
    for (const Value& item : value.sequence().items) list.push(item);
  }
  return list.finish();
}

/// True for the sequences that Python can concatenate and repeat.
bool is_list_or_tuple(const Value& value) {
  return value.is(Kind::kSequence) &&
         (value.sequence().type == SequenceType::kList || value.sequence().type == SequenceType::kTuple);
}

Result<Value> concatenate(Runtime& runtime, std::string_view left, std::string_view right) {
  TextBuilder text(runtime);
  if (text.make_room(left.size() + right.size())) {
    text.append(left);
    text.append(right);
  }
  return text.finish();
}

Result<Value> add(Runtime& runtime, const Value& left, const Value& right) {
  if (left.is_string()) {
    if (!right.is_string()) return error("can only concatenate str (not \"{}\") to str", type_name(right));
    if (is_markup(left) || is_markup(right)) {
      VN_ASSIGN(const Value marked_left, escaped(runtime, left));
      VN_ASSIGN(const Value marked_right, escaped(runtime, right));
      VN_ASSIGN(const Value joined, concatenate(runtime, marked_left.text(), marked_right.text()));
      return marked(runtime, joined);
    }
    return concatenate(runtime, left.text(), right.text());
  }
  if (is_list_or_tuple(left)) {
    if (!right.is(Kind::kSequence) || right.sequence().type != left.sequence().type) {
      return error("can only concatenate {0} (not \"{1}\") to {0}", type_name(left), type_name(right));
    }
    ListBuilder list(runtime, left.sequence().type);
    VN_TRY(runtime.budget.spend((left.sequence().items.size() + right.sequence().items.size()) / 64));
    for (const Value& item : left.sequence().items) list.push(item);
    for (const Value& item : right.sequence().items) list.push(item);
    return list.finish();
  }
  return unsupported(ArithmeticOp::kAdd, left, right);
}

}  // namespace

Result<Value> arithmetic(Runtime& runtime, ArithmeticOp op, const Value& left, const Value& right) {
  if (op == ArithmeticOp::kModulo && left.is_string()) return format_percent(runtime, left, right);
  if (left.is_undefined()) return error("{}", left.undefined_message());
  if (right.is_undefined()) return error("{}", right.undefined_message());
  if (left.is_number() && right.is_number()) {
    if (left.is_int() && right.is_int()) return integer_arithmetic(op, left.as_int(), right.as_int());
    if (left.is(Kind::kBigInteger) || right.is(Kind::kBigInteger)) {
      if (!left.is(Kind::kFloat) && !right.is(Kind::kFloat)) return error("integers beyond 64 bits can't be computed");
    }
    return float_arithmetic(op, left.as_real(), right.as_real());
  }
  if (op == ArithmeticOp::kAdd) return add(runtime, left, right);
  if (op == ArithmeticOp::kMultiply) {
    const auto repeats = [](const Value& value) { return value.is_string() || is_list_or_tuple(value); };
    if (repeats(left) && right.is_int()) return repeat(runtime, left, right.as_int());
    if (repeats(right) && left.is_int()) return repeat(runtime, right, left.as_int());
  }
  return unsupported(op, left, right);
}

Result<Value> negate(const Value& value) {
  if (value.is_undefined()) return error("{}", value.undefined_message());
  if (value.is(Kind::kFloat)) return Value::real(-value.as_real());
  if (!value.is_int()) return error("bad operand type for unary -: '{}'", type_name(value));
  return integer_arithmetic(ArithmeticOp::kSubtract, 0, value.as_int());
}

Result<std::int64_t> length(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined: return 0;
    case Kind::kString: return static_cast<std::int64_t>(value.string().length);
    case Kind::kSequence: return static_cast<std::int64_t>(value.sequence().items.size());
    case Kind::kDict: return static_cast<std::int64_t>(value.dict().entries.size());
    case Kind::kLoop: return static_cast<std::int64_t>(value.loop().items.sequence().items.size());
    default: return error("object of type '{}' has no len()", type_name(value));
  }
}

}  // namespace vernier::jinja
