// Expressions and calls of the interpreter.
#include "chat/jinja/builtins.h"
#include "chat/jinja/interpreter.h"
#include "chat/jinja/value_text.h"

namespace vernier::jinja {

Result<Value> Interpreter::eval(const Expr& expr) {
  if (expr.kind == ExprKind::kConstant) return static_cast<const ConstantExpr&>(expr).value;
  const CallLevel level(runtime_);
  Status allowed = level.status();
  if (allowed) allowed = runtime_.budget.spend();
  Result<Value> result = allowed ? eval_kind(expr) : tl::unexpected(allowed.error());
  if (!result) locate(result.error(), expr.line);
  return result;
}

Result<Value> Interpreter::eval_kind(const Expr& expr) {
  switch (expr.kind) {
    case ExprKind::kConstant: break;
    case ExprKind::kName: return eval_name(static_cast<const NameExpr&>(expr));
    case ExprKind::kConcat: return eval_concat(static_cast<const OperandsExpr&>(expr));
    case ExprKind::kArithmetic: return eval_arithmetic(static_cast<const ArithmeticExpr&>(expr));
    case ExprKind::kNegate:
    case ExprKind::kPlus:
    case ExprKind::kNot: return eval_unary(static_cast<const OperandsExpr&>(expr));
    case ExprKind::kAnd: return eval_logical(static_cast<const OperandsExpr&>(expr), false);
    case ExprKind::kOr: return eval_logical(static_cast<const OperandsExpr&>(expr), true);
    case ExprKind::kCompare: return eval_compare(static_cast<const CompareExpr&>(expr));
    case ExprKind::kConditional: return eval_conditional(static_cast<const ConditionalExpr&>(expr));
    case ExprKind::kList: return eval_sequence(static_cast<const OperandsExpr&>(expr), SequenceType::kList);
    case ExprKind::kTuple: return eval_sequence(static_cast<const OperandsExpr&>(expr), SequenceType::kTuple);
    case ExprKind::kDict: return eval_dict(static_cast<const DictExpr&>(expr));
    case ExprKind::kAttribute: return eval_attribute(static_cast<const AttributeExpr&>(expr));
    case ExprKind::kItem: return eval_item(static_cast<const ItemExpr&>(expr));
    case ExprKind::kSlice: return eval_slice(static_cast<const SliceExpr&>(expr));
    case ExprKind::kCall: return eval_call(static_cast<const CallExpr&>(expr), nullptr);
    case ExprKind::kFilter:
    case ExprKind::kTest: return eval_filter(static_cast<const FilterExpr&>(expr));
  }
  return static_cast<const ConstantExpr&>(expr).value;
}

Result<Value> Interpreter::eval_name(const NameExpr& expr) {
  const Value* found = lookup(expr.symbol);
  return found != nullptr ? *found : expr.undefined;
}

Result<Value> Interpreter::eval_concat(const OperandsExpr& expr) {
  TextBuilder text(runtime_);
  for (const Expr* operand : expr.operands) {
    VN_ASSIGN(const Value value, eval(*operand));
    VN_TRY(append_str(runtime_, text, value));
  }
  return text.finish();
}

/// `and` stops at the first false value, `or` at the first true one; the value itself is the result.
Result<Value> Interpreter::eval_logical(const OperandsExpr& expr, bool stops_at) {
  Value value;
  for (const Expr* operand : expr.operands) {
    VN_ASSIGN(value, eval(*operand));
    if (truth(value) == stops_at) break;
  }
  return value;
}

Result<Value> Interpreter::eval_unary(const OperandsExpr& expr) {
  VN_ASSIGN(const Value value, eval(*expr.operands.front()));
  if (expr.kind == ExprKind::kNot) return Value::boolean(!truth(value));
  if (expr.kind == ExprKind::kNegate) return negate(value);
  if (value.is_undefined()) return error("{}", value.undefined_message());
  if (!value.is_number()) return error("bad operand type for unary +: '{}'", type_name(value));
  return value.is(Kind::kBool) ? Value::integer(value.as_int()) : value;
}

Result<Value> Interpreter::eval_arithmetic(const ArithmeticExpr& expr) {
  VN_ASSIGN(Value value, eval(*expr.first));
  for (const auto& [op, operand] : expr.rest) {
    VN_ASSIGN(const Value right, eval(*operand));
    VN_ASSIGN(value, arithmetic(runtime_, op, value, right));
  }
  return value;
}

Result<Value> Interpreter::eval_compare(const CompareExpr& expr) {
  VN_ASSIGN(Value left, eval(*expr.first));
  for (const auto& [op, operand] : expr.rest) {
    VN_ASSIGN(Value right, eval(*operand));
    VN_ASSIGN(const bool holds, compare(runtime_, op, left, right));
    if (!holds) return Value::boolean(false);
    left = std::move(right);
  }
  return Value::boolean(true);
}

Result<Value> Interpreter::eval_conditional(const ConditionalExpr& expr) {
  VN_ASSIGN(const Value test, eval(*expr.test));
  if (truth(test)) return eval(*expr.when_true);
  if (expr.when_false != nullptr) return eval(*expr.when_false);
  return make_undefined(runtime_, "the inline if-expression was false and has no else");
}

Result<Value> Interpreter::eval_sequence(const OperandsExpr& expr, SequenceType type) {
  ListBuilder list(runtime_, type);
  for (const Expr* operand : expr.operands) {
    VN_ASSIGN(Value value, eval(*operand));
    list.push(std::move(value));
  }
  return list.finish();
}

Result<Value> Interpreter::eval_dict(const DictExpr& expr) {
  DictBuilder dict(runtime_);
  for (const auto& [key_expr, value_expr] : expr.entries) {
    VN_ASSIGN(Value key, eval(*key_expr));
    VN_ASSIGN(Value value, eval(*value_expr));
    dict.set(std::move(key), std::move(value));
  }
  return dict.finish();
}

Result<Value> Interpreter::eval_attribute(const AttributeExpr& expr) {
  VN_ASSIGN(const Value object, eval(*expr.object));
  return get_attribute(runtime_, object, expr.name);
}

Result<Value> Interpreter::eval_item(const ItemExpr& expr) {
  VN_ASSIGN(const Value object, eval(*expr.object));
  VN_ASSIGN(const Value key, eval(*expr.key));
  return get_item(runtime_, object, key);
}

Result<Value> Interpreter::eval_slice(const SliceExpr& expr) {
  VN_ASSIGN(const Value object, eval(*expr.object));
  SliceBounds bounds{Value::none(), Value::none(), Value::none()};
  if (expr.start != nullptr) {
    VN_ASSIGN(bounds.start, eval(*expr.start));
  }
  if (expr.stop != nullptr) {
    VN_ASSIGN(bounds.stop, eval(*expr.stop));
  }
  if (expr.step != nullptr) {
    VN_ASSIGN(bounds.step, eval(*expr.step));
  }
  return get_slice(runtime_, object, bounds);
}

Result<Value> Interpreter::eval_filter(const FilterExpr& expr) {
  const bool is_test = expr.kind == ExprKind::kTest;
  if (expr.call == nullptr) return error("No {} named '{}'.", is_test ? "test" : "filter", escape(expr.name));
  Value operand;
  if (expr.operand != nullptr) {
    VN_ASSIGN(operand, eval(*expr.operand));
  } else if (filter_input_ != nullptr) {
    operand = *filter_input_;
  }
  Args args;
  VN_TRY(eval_arguments(expr.arguments, args));
  return expr.call(runtime_, operand, args);
}

// --- calls -----------------------------------------------------------------------------------------------------------

Status Interpreter::eval_arguments(const CallArguments& arguments, Args& args) {
  VN_TRY(args.pay(runtime_.budget, arguments.positional.size() + arguments.keyword.size()));
  args.positional.reserve(arguments.positional.size());
  for (const Expr* argument : arguments.positional) {
    VN_ASSIGN(Value value, eval(*argument));
    args.positional.push_back(std::move(value));
  }
  for (const auto& [name, argument] : arguments.keyword) {
    VN_ASSIGN(Value value, eval(*argument));
    args.keyword.emplace_back(name, std::move(value));
  }
  if (arguments.more_positional != nullptr) {
    VN_ASSIGN(const Value more, eval(*arguments.more_positional));
    VN_ASSIGN(const Value items, iterate(runtime_, more));
    VN_TRY(args.pay(runtime_.budget, items.sequence().items.size()));
    for (const Value& item : items.sequence().items) args.positional.push_back(item);
  }
  if (arguments.more_keyword != nullptr) {
    VN_ASSIGN(const Value more, eval(*arguments.more_keyword));
    if (!more.is(Kind::kDict)) return error("argument after ** must be a mapping, not {}", type_name(more));
    VN_TRY(args.pay(runtime_.budget, more.dict().entries.size()));
    for (const auto& [key, value] : more.dict().entries) {
      if (!key.is_string()) return error("keywords must be strings");
      args.keyword.emplace_back(key.text(), value);
    }
    args.held.push_back(more);
  }
  return {};
}

Result<Value> Interpreter::eval_call(const CallExpr& expr, const Value* caller) {
  VN_ASSIGN(const Value callee, eval(*expr.callee));
  Args args;
  VN_TRY(eval_arguments(expr.arguments, args));
  if (caller != nullptr) args.keyword.emplace_back("caller", *caller);
  return call(callee, args);
}

Result<Value> Interpreter::call(const Value& callee, const Args& args) {
  switch (callee.kind()) {
    case Kind::kFunction: return callee.function().call(runtime_, callee.function().self, args);
    case Kind::kMacro: return call_macro(callee, args);
    case Kind::kLoop: return call_loop(callee, args);
    case Kind::kUndefined: return error("{}", callee.undefined_message());
    default: return error("'{}' object is not callable", type_name(callee));
  }
}

/// What a macro finds besides its parameters: caller, kwargs, varargs.
Status Interpreter::bind_special(const MacroNode& node, const Args& args, std::vector<bool> used) {
  const Signature& signature = node.signature;
  const std::size_t count = signature.parameters.size();
  bool own_caller = false;  // a parameter of that name
  for (const Parameter& parameter : signature.parameters) own_caller |= parameter.symbol == kCallerSymbol;
  if (signature.uses_caller && !own_caller) {
    Value caller;
    for (std::size_t i = 0; i < args.keyword.size(); ++i) {
      if (used[i] || args.keyword[i].first != "caller") continue;
      used[i] = true;
      caller = args.keyword[i].second;
    }
    if (caller.is_undefined()) {
      VN_ASSIGN(caller, make_undefined(runtime_, "No caller defined"));
    }
    VN_TRY(define(kCallerSymbol, std::move(caller)));
  }
  DictBuilder rest(runtime_);
  for (std::size_t i = 0; i < args.keyword.size(); ++i) {
    if (used[i]) continue;
    if (!signature.uses_kwargs) {
      return error("macro '{}' takes no keyword argument '{}'", node.name_text, escape(args.keyword[i].first));
    }
    rest.set_string(args.keyword[i].first, args.keyword[i].second);
  }
  if (signature.uses_kwargs) {
    VN_ASSIGN(Value dict, rest.finish());
    VN_TRY(define(kKwargsSymbol, std::move(dict)));
  }
  if (args.positional.size() > count && !signature.uses_varargs) {
    return error("macro '{}' takes not more than {} argument(s)", node.name_text, count);
  }
  if (signature.uses_varargs) {
    ListBuilder extra(runtime_, SequenceType::kTuple);
    for (std::size_t i = count; i < args.positional.size(); ++i) extra.push(args.positional[i]);
    VN_ASSIGN(Value tuple, extra.finish());
    VN_TRY(define(kVarargsSymbol, std::move(tuple)));
  }
  return {};
}

Status Interpreter::bind_parameters(const MacroNode& node, const Args& args) {
  const auto& parameters = node.signature.parameters;
  std::vector<bool> used(args.keyword.size());
  std::vector<const Value*> given(parameters.size());
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    if (i < args.positional.size()) {
      given[i] = &args.positional[i];
      continue;
    }
    for (std::size_t k = 0; k < args.keyword.size(); ++k) {
      if (used[k] || args.keyword[k].first != parameters[i].name) continue;
      used[k] = true;
      given[i] = &args.keyword[k].second;
      break;
    }
    VN_TRY(runtime_.budget.spend(1 + args.keyword.size() / 16));
  }
  VN_TRY(bind_special(node, args, std::move(used)));
  // Defaults see the parameters before them, so values are bound in order.
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    Value value;
    if (given[i] != nullptr) {
      value = *given[i];
    } else if (parameters[i].fallback != nullptr) {
      VN_ASSIGN(value, eval(*parameters[i].fallback));
    } else {
      VN_ASSIGN(value, make_undefined(runtime_, fmt::format("parameter '{}' was not provided", parameters[i].name)));
    }
    VN_TRY(define(parameters[i].symbol, std::move(value)));
  }
  return {};
}

Result<Value> Interpreter::call_macro(const Value& macro, const Args& args) {
  const MacroNode& node = *macro.macro().node;
  const ScopeSwitch inside(*this, inner_scope(macro.macro().scope));
  VN_TRY(bind_parameters(node, args));
  TextBuilder text(runtime_);
  TextBuilder* const before = std::exchange(out_, &text);
  const Result<Flow> flow = run_body(node.body);
  out_ = before;
  VN_TRY(flow);
  return text.finish();
}

/// loop(items) of a recursive loop: what its body prints for those.
Result<Value> Interpreter::call_loop(const Value& loop, const Args& args) {
  VN_ASSIGN(const Bound bound, bind(args, "loop", {"iterable"}, 1));
  const LoopObject& state = loop.loop();
  if (!state.node->recursive) return error("The loop must have the 'recursive' marker to be called recursively.");
  const ScopeSwitch inside(*this, state.scope);
  TextBuilder text(runtime_);
  TextBuilder* const before = std::exchange(out_, &text);
  const Result<Flow> flow = run_loop(*state.node, *bound[0], state.depth0 + 1);
  out_ = before;
  VN_TRY(flow);
  return text.finish();
}

}  // namespace vernier::jinja
