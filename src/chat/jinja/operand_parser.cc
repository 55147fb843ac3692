// Operands of expressions: literals, names, and what may follow them: subscripts, calls, filters, tests.
#include <charconv>
#include <cstdlib>

#include "chat/jinja/builtins.h"
#include "chat/jinja/parser_impl.h"

namespace vernier::jinja {

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

}  // namespace vernier::jinja
