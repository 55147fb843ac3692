#include "chat/jinja/parser.h"

#include <algorithm>

#include "chat/jinja/parser_impl.h"

namespace vernier::jinja {

// --- tokens and nodes ------------------------------------------------------------------------------------------------

Parser::Parser(std::vector<Token> tokens, const TemplateLimits& limits) : tokens_(std::move(tokens)), limits_(limits) {
  for (const char* name : {"loop", "caller", "kwargs", "varargs"}) (void)symbol(name);
}

Token Parser::take() {
  Token token = current();
  if (at_ + 1 < tokens_.size()) ++at_;
  return token;
}

bool Parser::skip_operator(std::string_view text) {
  if (!is_operator(text)) return false;
  (void)take();
  return true;
}

bool Parser::skip_name(std::string_view text) {
  if (!is_name(text)) return false;
  (void)take();
  return true;
}

tl::unexpected<Error> Parser::fail_here(std::string_view message) const {
  return syntax_error(current().line, message);
}

tl::unexpected<Error> Parser::too_deep() const {
  return fail_here(fmt::format("nested deeper than {} levels", limits_.max_nesting));
}

Status Parser::expect_operator(std::string_view text) {
  if (skip_operator(text)) return {};
  return fail_here(fmt::format("expected token '{}', got '{}'", text, describe(current())));
}

Status Parser::expect_name(std::string_view text) {
  if (skip_name(text)) return {};
  return fail_here(fmt::format("expected token '{}', got '{}'", text, describe(current())));
}

Status Parser::expect(TokenType type, std::string_view what) {
  if (current().type != type) {
    return fail_here(fmt::format("expected token '{}', got '{}'", what, describe(current())));
  }
  (void)take();
  return {};
}

Result<std::string> Parser::take_name() {
  if (current().type != TokenType::kName) {
    return fail_here(fmt::format("expected token 'name', got '{}'", describe(current())));
  }
  return take().text;
}

Symbol Parser::symbol(const std::string& name) {
  const auto [entry, added] = symbols_.emplace(name, static_cast<Symbol>(program_.symbols.size()));
  if (added) program_.symbols.push_back(name);
  return entry->second;
}

Expr* Parser::constant(std::uint32_t line, Value value) {
  auto* const expr = make<ConstantExpr>(line);
  expr->value = std::move(value);
  return expr;
}

Status Parser::refuse_unknown(std::size_t before) const {
  if (unknown_.size() == before) return {};
  return syntax_error(unknown_[before].line, unknown_[before].message);
}

// --- bodies ----------------------------------------------------------------------------------------------------------

Result<Program> Parser::run() {
  VN_ASSIGN(program_.body, body({}));
  VN_TRY(refuse_unknown(0));
  return std::move(program_);
}

/// Statements up to a tag named in `end_names`, whose `{%` is taken and whose name isn't; up to the end where the list
/// is empty.
Result<Body> Parser::body(EndNames end_names) {
  const Level level(*this);
  if (level.deep()) return too_deep();
  Body result;
  OutputNode* output = nullptr;  // text and prints that follow each other share a node
  const auto add = [&](std::uint32_t line, Expr* part) {
    if (output == nullptr) result.push_back(output = make<OutputNode>(line));
    output->parts.push_back(part);
  };
  for (;;) {
    const std::uint32_t line = current().line;
    if (current().type == TokenType::kText) {
      add(line, constant(line, make_constant(take().text)));
    } else if (current().type == TokenType::kVariableBegin) {
      (void)take();
      VN_ASSIGN(Expr * part, tuple_or_expression(Conditional::kAllowed));
      add(line, part);
      VN_TRY(expect(TokenType::kVariableEnd, "end of print statement"));
    } else if (current().type == TokenType::kBlockBegin) {
      output = nullptr;
      (void)take();
      for (const std::string_view name : end_names) {
        if (is_name(name)) return result;
      }
      VN_ASSIGN(Statement * next, statement(end_names));
      result.push_back(next);
      VN_TRY(expect(TokenType::kBlockEnd, "end of statement block"));
    } else {
      if (end_names.size() == 0) return result;
      return unfinished(end_names);
    }
  }
}

/// The rest of an opening tag, then its body.
Result<Body> Parser::block_body(EndNames end_names) {
  (void)skip_operator(":");
  VN_TRY(expect(TokenType::kBlockEnd, "end of statement block"));
  return body(end_names);
}

/// A body with variables of its own: what it doesn't know is an error even inside a condition.
Result<Body> Parser::scoped_body(EndNames end_names) {
  const std::size_t before = unknown_.size();
  VN_ASSIGN(Body result, block_body(end_names));
  VN_TRY(refuse_unknown(before));
  return result;
}

namespace {

std::string alternatives(std::initializer_list<std::string_view> names) {
  std::string out;
  for (const std::string_view name : names) out += fmt::format("{}'{}'", out.empty() ? "" : " or ", name);
  return out;
}

}  // namespace

tl::unexpected<Error> Parser::unfinished(EndNames end_names) const {
  return fail_here("Unexpected end of template, looking for " + alternatives(end_names));
}

tl::unexpected<Error> Parser::unknown_tag(EndNames end_names) const {
  std::string message = fmt::format("Encountered unknown tag '{}'", describe(current()));
  if (end_names.size() > 0) message += ", looking for " + alternatives(end_names);
  return fail_here(message);
}

Result<Statement*> Parser::statement(EndNames end_names) {
  if (current().type != TokenType::kName) return fail_here("tag name expected");
  const std::uint32_t line = current().line;
  const std::string& name = current().text;
  using Handler = Result<Statement*> (Parser::*)(std::uint32_t);
  static constexpr std::pair<std::string_view, Handler> kHandlers[] = {{"if", &Parser::if_statement},
                                                                       {"for", &Parser::for_statement},
                                                                       {"set", &Parser::set_statement},
                                                                       {"macro", &Parser::macro_statement},
                                                                       {"call", &Parser::call_statement},
                                                                       {"filter", &Parser::filter_statement},
                                                                       {"with", &Parser::with_statement},
                                                                       {"print", &Parser::print_statement},
                                                                       {"generation", &Parser::generation_statement}};
  for (const auto& [tag, handler] : kHandlers) {
    if (name == tag) {
      (void)take();
      return (this->*handler)(line);
    }
  }
  if (name == "break") return jump_statement(line, StatementKind::kBreak);
  if (name == "continue") return jump_statement(line, StatementKind::kContinue);
  for (const std::string_view tag : {"block", "extends", "include", "import", "from", "autoescape"}) {
    if (name == tag) return fail_here(fmt::format("the tag '{}' is not supported", tag));
  }
  return unknown_tag(end_names);
}

// --- statements ------------------------------------------------------------------------------------------------------

Result<Statement*> Parser::if_statement(std::uint32_t line) {
  auto* const node = make<IfNode>(line);
  const std::size_t before = unknown_.size();
  for (;;) {
    VN_ASSIGN(Expr * test, tuple_or_expression(Conditional::kForbidden));
    VN_ASSIGN(Body then, block_body({"elif", "else", "endif"}));
    node->branches.emplace_back(test, std::move(then));
    if (!skip_name("elif")) break;
  }
  if (skip_name("else")) {
    VN_ASSIGN(node->otherwise, block_body({"endif"}));
  }
  VN_TRY(expect_name("endif"));
  allow_unknown(before);
  return node;
}

Result<Statement*> Parser::for_statement(std::uint32_t line) {
  auto* const node = make<ForNode>(line);
  VN_ASSIGN(node->target, target(false, "in"));
  VN_TRY(expect_name("in"));
  VN_ASSIGN(node->iterable, tuple_or_expression(Conditional::kForbidden, "recursive"));
  if (skip_name("if")) {
    VN_ASSIGN(node->condition, expression());
  }
  node->recursive = skip_name("recursive");
  ++loops_;
  VN_ASSIGN(node->body, scoped_body({"endfor", "else"}));
  --loops_;
  if (skip_name("else")) {
    VN_ASSIGN(node->otherwise, scoped_body({"endfor"}));
  }
  VN_TRY(expect_name("endfor"));
  return node;
}

Result<Statement*> Parser::set_statement(std::uint32_t line) {
  VN_ASSIGN(Target place, target(true));
  if (skip_operator("=")) {
    auto* const node = make<SetNode>(line);
    node->target = std::move(place);
    VN_ASSIGN(node->value, tuple_or_expression(Conditional::kAllowed));
    return node;
  }
  auto* const node = make<SetBlockNode>(line);
  node->target = std::move(place);
  while (skip_operator("|")) {
    VN_ASSIGN(node->filter, filter(node->filter));
  }
  VN_ASSIGN(node->body, scoped_body({"endset"}));
  VN_TRY(expect_name("endset"));
  return node;
}

Status Parser::signature(Signature& signature) {
  VN_TRY(expect_operator("("));
  while (!is_operator(")")) {
    if (!signature.parameters.empty()) VN_TRY(expect_operator(","));
    Parameter parameter;
    VN_ASSIGN(parameter.name, take_name());
    parameter.symbol = symbol(parameter.name);
    if (skip_operator("=")) {
      VN_ASSIGN(parameter.fallback, expression());
    } else if (!signature.parameters.empty() && signature.parameters.back().fallback != nullptr) {
      return fail_here("non-default argument follows default argument");
    }
    signature.parameters.push_back(std::move(parameter));
  }
  return expect_operator(")");
}

Status Parser::macro_body(MacroNode& macro, std::string_view end_name) {
  macros_.push_back(&macro.signature);
  const std::size_t loops = std::exchange(loops_, 0);
  VN_ASSIGN(macro.body, scoped_body({end_name}));
  loops_ = loops;
  macros_.pop_back();
  return expect_name(end_name);
}

Result<Statement*> Parser::macro_statement(std::uint32_t line) {
  auto* const node = make<MacroNode>(line);
  VN_ASSIGN(node->name_text, take_name());
  node->symbol = symbol(node->name_text);
  VN_TRY(signature(node->signature));
  VN_TRY(macro_body(*node, "endmacro"));
  return node;
}

Result<Statement*> Parser::call_statement(std::uint32_t line) {
  auto* const node = make<CallBlockNode>(line);
  node->caller = make<MacroNode>(line);
  node->caller->name_text = "caller";
  if (is_operator("(")) VN_TRY(signature(node->caller->signature));
  VN_ASSIGN(Expr * callee, expression());
  if (callee->kind != ExprKind::kCall) return syntax_error(line, "expected call");
  node->call = static_cast<CallExpr*>(callee);
  VN_TRY(macro_body(*node->caller, "endcall"));
  return node;
}

Result<Statement*> Parser::filter_statement(std::uint32_t line) {
  auto* const node = make<FilterBlockNode>(line);
  VN_ASSIGN(node->filter, filter(nullptr));
  while (skip_operator("|")) {
    VN_ASSIGN(node->filter, filter(node->filter));
  }
  VN_ASSIGN(node->body, scoped_body({"endfilter"}));
  VN_TRY(expect_name("endfilter"));
  return node;
}

Result<Statement*> Parser::with_statement(std::uint32_t line) {
  auto* const node = make<ScopeNode>(line);
  while (current().type != TokenType::kBlockEnd) {
    if (!node->assignments.empty()) VN_TRY(expect_operator(","));
    VN_ASSIGN(Target place, target(false));
    VN_TRY(expect_operator("="));
    VN_ASSIGN(Expr * value, expression());
    node->assignments.emplace_back(std::move(place), value);
  }
  VN_ASSIGN(node->body, scoped_body({"endwith"}));
  VN_TRY(expect_name("endwith"));
  return node;
}

Result<Statement*> Parser::generation_statement(std::uint32_t line) {
  auto* const node = make<ScopeNode>(line);
  VN_ASSIGN(node->body, scoped_body({"endgeneration"}));
  VN_TRY(expect_name("endgeneration"));
  return node;
}

Result<Statement*> Parser::print_statement(std::uint32_t line) {
  auto* const node = make<OutputNode>(line);
  while (current().type != TokenType::kBlockEnd) {
    if (!node->parts.empty()) VN_TRY(expect_operator(","));
    VN_ASSIGN(Expr * part, expression());
    node->parts.push_back(part);
  }
  return node;
}

Result<Statement*> Parser::jump_statement(std::uint32_t line, StatementKind kind) {
  if (loops_ == 0) return fail_here(fmt::format("'{}' outside loop", current().text));
  (void)take();
  return make<JumpNode>(line, kind);
}

Result<Program> parse(std::string_view source, const TemplateLimits& limits) {
  VN_ASSIGN(std::vector<Token> tokens, tokenize(source));
  return Parser(std::move(tokens), limits).run();
}

}  // namespace vernier::jinja
