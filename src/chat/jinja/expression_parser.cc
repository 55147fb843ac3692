// Expressions, in the order of precedence from the loosest to the tightest, and what can be assigned to.
#include <algorithm>
#include <optional>

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
