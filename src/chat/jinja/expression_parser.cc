// Expressions, in the order of precedence from the loosest to the tightest.
#include <charconv>
#include <cstdlib>
#include <limits>

#include "chat/jinja/builtins.h"
#include "chat/jinja/parser_impl.h"

namespace vernier::jinja {

bool Parser::at_tuple_end(std::string_view end_name) const {
  const TokenType type = current().type;
  return type == TokenType::kVariableEnd || type == TokenType::kBlockEnd || is_operator(")") ||
         (!end_name.empty() && is_name(end_name));
}

/// One expression, or a tuple where commas follow.
Result<Expr*> Parser::tuple_or_expression(Conditional conditional, std::string_view end_name) {
  const std::uint32_t line = current().line;
  std::vector<Expr*> items;
  bool is_tuple = false;
  while (!at_tuple_end(end_name)) {
    VN_ASSIGN(Expr * item, expression(conditional));
    items.push_back(item);
    if (!skip_operator(",")) break;
    is_tuple = true;
  }
  if (!is_tuple && !items.empty()) return items.front();
  if (items.empty()) return fail_here(fmt::format("Expected an expression, got '{}'", describe(current())));
  auto* const tuple = make<OperandsExpr>(line, ExprKind::kTuple);
  tuple->operands = std::move(items);
  return tuple;
}

Result<Expr*> Parser::parenthesised() {
  const std::uint32_t line = take().line;
  if (skip_operator(")")) return make<OperandsExpr>(line, ExprKind::kTuple);
  VN_ASSIGN(Expr * inner, tuple_or_expression(Conditional::kAllowed));
  VN_TRY(expect_operator(")"));
  return inner;
}

Result<Expr*> Parser::expression(Conditional conditional) {
  const Level level(*this);
  if (level.deep()) return too_deep();
  return conditional == Conditional::kAllowed ? conditional_expression() : logical(ExprKind::kOr);
}

Result<Expr*> Parser::conditional_expression() {
  std::uint32_t line = current().line;
  const std::size_t before = unknown_.size();
  VN_ASSIGN(Expr * result, logical(ExprKind::kOr));
  while (skip_name("if")) {
    auto* const node = make<ConditionalExpr>(line);
    node->when_true = result;
    VN_ASSIGN(node->test, logical(ExprKind::kOr));
    if (skip_name("else")) {
      VN_ASSIGN(node->when_false, expression());
    }
    allow_unknown(before);
    result = node;
    line = current().line;
  }
  return result;
}

/// `or` over `and` over `not`.
Result<Expr*> Parser::logical(ExprKind kind) {
  const auto operand = [&] { return kind == ExprKind::kOr ? logical(ExprKind::kAnd) : negation(); };
  const std::uint32_t line = current().line;
  VN_ASSIGN(Expr * first, operand());
  const std::string_view word = kind == ExprKind::kOr ? "or" : "and";
  if (!is_name(word)) return first;
  auto* const node = make<OperandsExpr>(line, kind);
  node->operands.push_back(first);
  while (skip_name(word)) {
    VN_ASSIGN(Expr * next, operand());
    node->operands.push_back(next);
  }
  return node;
}

Result<Expr*> Parser::negation() {
  if (!is_name("not")) return comparison();
  const Level level(*this);
  if (level.deep()) return too_deep();
  auto* const node = make<OperandsExpr>(take().line, ExprKind::kNot);
  VN_ASSIGN(Expr * operand, negation());
  node->operands.push_back(operand);
  return node;
}

Result<Expr*> Parser::comparison() {
  static constexpr std::pair<std::string_view, CompareOp> kOps[] = {
      {"==", CompareOp::kEqual},     {"!=", CompareOp::kNotEqual}, {"<", CompareOp::kLess},
      {"<=", CompareOp::kLessEqual}, {">", CompareOp::kGreater},   {">=", CompareOp::kGreaterEqual}};
  const std::uint32_t line = current().line;
  VN_ASSIGN(Expr * first, sum());
  CompareExpr* node = nullptr;
  for (;;) {
    std::optional<CompareOp> op;
    for (const auto& [text, candidate] : kOps) {
      if (is_operator(text)) op = candidate;
    }
    if (is_name("in")) op = CompareOp::kIn;
    if (is_name("not") && ahead().type == TokenType::kName && ahead().text == "in") {
      (void)take();
      op = CompareOp::kNotIn;
    }
    if (!op) break;
    (void)take();
    if (node == nullptr) {
      node = make<CompareExpr>(line);
      node->first = first;
    }
    VN_ASSIGN(Expr * next, sum());
    node->rest.emplace_back(*op, next);
  }
  return node != nullptr ? node : first;
}

Result<Expr*> Parser::arithmetic_chain(Operand operand,
                                       std::initializer_list<std::pair<std::string_view, ArithmeticOp>> ops) {
  const std::uint32_t line = current().line;
  VN_ASSIGN(Expr * first, (this->*operand)());
  ArithmeticExpr* node = nullptr;
  for (;;) {
    const auto* const op =
        std::find_if(ops.begin(), ops.end(), [&](const auto& candidate) { return is_operator(candidate.first); });
    if (op == ops.end()) break;
    (void)take();
    if (node == nullptr) {
      node = make<ArithmeticExpr>(line);
      node->first = first;
    }
    VN_ASSIGN(Expr * next, (this->*operand)());
    node->rest.emplace_back(op->second, next);
  }
  return node != nullptr ? node : first;
}

Result<Expr*> Parser::sum() {
  return arithmetic_chain(&Parser::concatenation, {{"+", ArithmeticOp::kAdd}, {"-", ArithmeticOp::kSubtract}});
}

Result<Expr*> Parser::concatenation() {
  const std::uint32_t line = current().line;
  VN_ASSIGN(Expr * first, product());
  if (!is_operator("~")) return first;
  auto* const node = make<OperandsExpr>(line, ExprKind::kConcat);
  node->operands.push_back(first);
  while (skip_operator("~")) {
    VN_ASSIGN(Expr * next, product());
    node->operands.push_back(next);
  }
  return node;
}

Result<Expr*> Parser::product() {
  return arithmetic_chain(&Parser::power, {{"*", ArithmeticOp::kMultiply},
                                           {"/", ArithmeticOp::kDivide},
                                           {"//", ArithmeticOp::kFloorDivide},
                                           {"%", ArithmeticOp::kModulo}});
}

Result<Expr*> Parser::power() {
  const std::uint32_t line = current().line;
  VN_ASSIGN(Expr * first, unary(true));
  if (!is_operator("**")) return first;
  auto* const node = make<ArithmeticExpr>(line);
  node->first = first;
  while (skip_operator("**")) {
    VN_ASSIGN(Expr * next, unary(true));
    node->rest.emplace_back(ArithmeticOp::kPower, next);
  }
  return node;
}

Result<Expr*> Parser::unary(bool with_filters) {
  const Level level(*this);
  if (level.deep()) return too_deep();
  Expr* result = nullptr;
  if (is_operator("-") || is_operator("+")) {
    auto* const node = make<OperandsExpr>(current().line, is_operator("-") ? ExprKind::kNegate : ExprKind::kPlus);
    (void)take();
    VN_ASSIGN(Expr * operand, unary(false));
    node->operands.push_back(operand);
    result = node;
  } else {
    VN_ASSIGN(result, primary());
  }
  VN_ASSIGN(result, postfix(result));
  return with_filters ? filters(result) : Result<Expr*>(result);
}

Result<Expr*> Parser::primary() {
  const std::uint32_t line = current().line;
  switch (current().type) {
    case TokenType::kName: return name_reference();
    case TokenType::kString: {
      std::string text;
      while (current().type == TokenType::kString) text += take().text;  // neighbours are one string
      return constant(line, make_constant(std::move(text)));
    }
    case TokenType::kInteger:
    case TokenType::kFloat: return number();
    default: break;
  }
  if (is_operator("(")) return parenthesised();
  if (is_operator("[")) return list();
  if (is_operator("{")) return dict();
  return fail_here(fmt::format("unexpected '{}'", describe(current())));
}

Result<Expr*> Parser::number() {
  const Token token = take();
  if (token.type == TokenType::kFloat)
    return constant(token.line, Value::real(std::strtod(token.text.c_str(), nullptr)));
  std::string_view digits = token.text;
  int base = 10;
  if (digits.size() > 2 && digits[0] == '0') {
    const char kind = static_cast<char>(digits[1] | 0x20);
    base = kind == 'x' ? 16 : (kind == 'o' ? 8 : (kind == 'b' ? 2 : 10));
    if (base != 10) digits.remove_prefix(2);
  }
  std::int64_t value = 0;
  const auto [end, problem] = std::from_chars(digits.data(), digits.data() + digits.size(), value, base);
  if (problem != std::errc() || end != digits.data() + digits.size()) {
    return syntax_error(token.line, fmt::format("integer '{}' beyond 64 bits", escape(token.text)));
  }
  return constant(token.line, Value::integer(value));
}

Result<Expr*> Parser::list() {
  auto* const node = make<OperandsExpr>(take().line, ExprKind::kList);
  while (!is_operator("]")) {
    VN_ASSIGN(Expr * item, expression());
    node->operands.push_back(item);
    if (!skip_operator(",")) break;
  }
  VN_TRY(expect_operator("]"));
  return node;
}

Result<Expr*> Parser::dict() {
  auto* const node = make<DictExpr>(take().line);
  while (!is_operator("}")) {
    VN_ASSIGN(Expr * key, expression());
    VN_TRY(expect_operator(":"));
    VN_ASSIGN(Expr * value, expression());
    node->entries.emplace_back(key, value);
    if (!skip_operator(",")) break;
  }
  VN_TRY(expect_operator("}"));
  return node;
}

Result<Expr*> Parser::name_reference() {
  const Token token = take();
  if (token.text == "true" || token.text == "True") return constant(token.line, Value::boolean(true));
  if (token.text == "false" || token.text == "False") return constant(token.line, Value::boolean(false));
  if (token.text == "none" || token.text == "None") return constant(token.line, Value::none());
  auto* const node = make<NameExpr>(token.line);
  node->symbol = symbol(token.text);
  node->undefined = make_constant_undefined(fmt::format("'{}' is undefined", escape(token.text)));
  for (Signature* macro : macros_) {
    macro->uses_caller |= node->symbol == kCallerSymbol;
    macro->uses_kwargs |= node->symbol == kKwargsSymbol;
    macro->uses_varargs |= node->symbol == kVarargsSymbol;
  }
  return node;
}

Result<Expr*> Parser::postfix(Expr* expr) {
  for (std::size_t length = 0;; ++length) {
    if (length > limits_.max_nesting) return too_deep();
    if (is_operator(".") || is_operator("[")) {
      VN_ASSIGN(expr, subscript(expr));
    } else if (is_operator("(")) {
      VN_ASSIGN(expr, call(expr));
    } else {
      return expr;
    }
  }
}

Result<Expr*> Parser::filters(Expr* expr) {
  for (std::size_t length = 0;; ++length) {
    if (length > limits_.max_nesting) return too_deep();
    if (skip_operator("|")) {
      VN_ASSIGN(expr, filter(expr));
    } else if (is_name("is")) {
      VN_ASSIGN(expr, test(expr));
    } else if (is_operator("(")) {
      VN_ASSIGN(expr, call(expr));
    } else {
      return expr;
    }
  }
}

Result<Expr*> Parser::subscript(Expr* object) {
  const Token token = take();
  if (token.text == "[") return bracket_item(object, token.line);
  if (current().type == TokenType::kName) {
    auto* const node = make<AttributeExpr>(token.line);
    node->object = object;
    node->name = take().text;
    return node;
  }
  if (current().type != TokenType::kInteger) return fail_here("expected name or number");
  auto* const node = make<ItemExpr>(token.line);
  node->object = object;
  VN_ASSIGN(node->key, number());
  return node;
}

Result<Expr*> Parser::bracket_item(Expr* object, std::uint32_t line) {
  Expr* parts[3] = {nullptr, nullptr, nullptr};
  std::size_t colons = 0;
  while (!is_operator("]")) {
    if (colons < 2 && skip_operator(":")) {
      ++colons;
      continue;
    }
    if (parts[colons] != nullptr) break;
    VN_ASSIGN(parts[colons], expression());
  }
  if (colons == 0 && is_operator(",") && parts[0] != nullptr) {  // a[1, 2] takes a tuple
    auto* const tuple = make<OperandsExpr>(line, ExprKind::kTuple);
    tuple->operands.push_back(parts[0]);
    while (skip_operator(",") && !is_operator("]")) {
      VN_ASSIGN(Expr * item, expression());
      tuple->operands.push_back(item);
    }
    parts[0] = tuple;
  }
  VN_TRY(expect_operator("]"));
  if (colons == 0) {
    if (parts[0] == nullptr) return syntax_error(line, "Expected an expression, got ']'");
    auto* const node = make<ItemExpr>(line);
    node->object = object;
    node->key = parts[0];
    return node;
  }
  auto* const node = make<SliceExpr>(line);
  node->object = object;
  node->start = parts[0];
  node->stop = parts[1];
  node->step = parts[2];
  return node;
}

Status Parser::call_arguments(CallArguments& arguments) {
  VN_TRY(expect_operator("("));
  const auto misplaced = [&] { return fail_here("invalid syntax for function call expression"); };
  while (!is_operator(")")) {
    if (skip_operator("*")) {
      if (arguments.more_positional != nullptr || arguments.more_keyword != nullptr) return misplaced();
      VN_ASSIGN(arguments.more_positional, expression());
    } else if (skip_operator("**")) {
      if (arguments.more_keyword != nullptr) return misplaced();
      VN_ASSIGN(arguments.more_keyword, expression());
    } else if (current().type == TokenType::kName && ahead().type == TokenType::kOperator && ahead().text == "=") {
      if (arguments.more_keyword != nullptr) return misplaced();
      std::string name = take().text;
      (void)take();
      for (const auto& [other, value] : arguments.keyword) {
        if (other == name) return fail_here(fmt::format("keyword argument repeated: {}", escape(name)));
      }
      VN_ASSIGN(Expr * value, expression());
      arguments.keyword.emplace_back(std::move(name), value);
    } else {
      if (arguments.more_positional != nullptr || arguments.more_keyword != nullptr || !arguments.keyword.empty()) {
        return misplaced();
      }
      VN_ASSIGN(Expr * value, expression());
      arguments.positional.push_back(value);
    }
    if (!skip_operator(",")) break;
  }
  return expect_operator(")");
}

Result<Expr*> Parser::call(Expr* callee) {
  auto* const node = make<CallExpr>(current().line);
  node->callee = callee;
  VN_TRY(call_arguments(node->arguments));
  return node;
}

/// A filter behind its `|`.
Result<FilterExpr*> Parser::filter(Expr* operand) {
  auto* const node = make<FilterExpr>(current().line, ExprKind::kFilter);
  node->operand = operand;
  VN_ASSIGN(node->name, take_name());
  while (skip_operator(".")) {
    VN_ASSIGN(const std::string part, take_name());
    node->name += "." + part;
  }
  if (is_operator("(")) VN_TRY(call_arguments(node->arguments));
  node->call = find_filter(node->name);
  if (node->call == nullptr) note_unknown(node->line, fmt::format("No filter named '{}'.", escape(node->name)));
  return node;
}

Result<Expr*> Parser::test(Expr* operand) {
  const std::uint32_t line = take().line;
  const bool negated = skip_name("not");
  auto* const node = make<FilterExpr>(line, ExprKind::kTest);
  node->operand = operand;
  VN_ASSIGN(node->name, take_name());
  while (skip_operator(".")) {
    VN_ASSIGN(const std::string part, take_name());
    node->name += "." + part;
  }
  const TokenType type = current().type;
  if (is_operator("(")) {
    VN_TRY(call_arguments(node->arguments));
  } else if ((type == TokenType::kName && !is_name("else") && !is_name("or") && !is_name("and")) ||
             type == TokenType::kString || type == TokenType::kInteger || type == TokenType::kFloat ||
             is_operator("[") || is_operator("{")) {
    if (is_name("is")) return fail_here("You cannot chain multiple tests with is");
    const Level level(*this);
    if (level.deep()) return too_deep();
    VN_ASSIGN(Expr * argument, primary());
    VN_ASSIGN(argument, postfix(argument));
    node->arguments.positional.push_back(argument);
  }
  node->call = find_test(node->name);
  if (node->call == nullptr) note_unknown(line, fmt::format("No test named '{}'.", escape(node->name)));
  if (!negated) return node;
  auto* const result = make<OperandsExpr>(line, ExprKind::kNot);
  result->operands.push_back(node);
  return result;
}

// --- targets ---------------------------------------------------------------------------------------------------------

Result<Target> Parser::single_target(bool with_members) {
  Target result;
  result.line = current().line;
  if (skip_operator("(")) {
    const Level level(*this);
    if (level.deep()) return too_deep();
    VN_ASSIGN(result, target(with_members));
    VN_TRY(expect_operator(")"));
    return result;
  }
  VN_ASSIGN(const std::string name, take_name());
  for (const std::string_view word : {"true", "false", "none", "True", "False", "None"}) {
    if (name == word) return syntax_error(result.line, fmt::format("can't assign to '{}'", name));
  }
  result.symbol = symbol(name);
  if (with_members && skip_operator(".")) {
    result.kind = Target::Kind::kMember;
    VN_ASSIGN(result.member, take_name());
  }
  return result;
}

Result<Target> Parser::target(bool with_members, std::string_view end_name) {
  Target tuple;
  tuple.kind = Target::Kind::kTuple;
  tuple.line = current().line;
  bool has_comma = false;
  while (!at_tuple_end(end_name)) {
    VN_ASSIGN(Target item, single_target(with_members));
    tuple.items.push_back(std::move(item));
    if (!skip_operator(",")) break;
    has_comma = true;
  }
  if (tuple.items.empty()) return fail_here(fmt::format("Expected an expression, got '{}'", describe(current())));
  if (has_comma) return tuple;
  Target single = std::move(tuple.items.front());
  return single;
}

}  // namespace vernier::jinja
