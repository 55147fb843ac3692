// The parser's state and grammar, shared by parser.cc (statements), expression_parser.cc (operators and targets) and
// operand_parser.cc (what operators work on).
#pragma once

#include <algorithm>
#include <initializer_list>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "chat/jinja/lexer.h"
#include "chat/jinja/node.h"

namespace vernier::jinja {

class Parser {
 public:
  Parser(std::vector<Token> tokens, const TemplateLimits& limits);
  Result<Program> run();

 private:
  /// Counts how deep the descent is; `deep()` tells whether that's too much.
  class Level {
   public:
    explicit Level(Parser& parser) : parser_(parser) { ++parser_.level_; }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;
    ~Level() { --parser_.level_; }
    [[nodiscard]] bool deep() const { return parser_.level_ > parser_.limits_.max_nesting; }

   private:
    Parser& parser_;
  };
  /// Names of filters and tests nobody knows, found while parsing. Jinja refuses them when it compiles, except in the
  /// branches of a condition, where they only fail if they run.
  struct Unknown {
    std::uint32_t line;
    std::string message;
  };

  // tokens
  [[nodiscard]] const Token& current() const { return tokens_[at_]; }
  [[nodiscard]] const Token& ahead() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  Token take();
  [[nodiscard]] bool is_operator(std::string_view text) const { return is_at(TokenType::kOperator, text); }
  [[nodiscard]] bool is_name(std::string_view text) const { return is_at(TokenType::kName, text); }
  [[nodiscard]] bool is_at(TokenType type, std::string_view text) const {
    return current().type == type && current().text == text;
  }
  bool skip_operator(std::string_view text);
  bool skip_name(std::string_view text);
  [[nodiscard]] Status expect_operator(std::string_view text);
  [[nodiscard]] Status expect_name(std::string_view text);
  [[nodiscard]] Status expect(TokenType type, std::string_view what);
  [[nodiscard]] Result<std::string> take_name();
  [[nodiscard]] tl::unexpected<Error> fail_here(std::string_view message) const;
  [[nodiscard]] tl::unexpected<Error> too_deep() const;

  // nodes
  template <class T, class... Arguments>
  T* make(std::uint32_t line, Arguments&&... arguments) {
    auto node = std::make_unique<T>(std::forward<Arguments>(arguments)...);
    node->line = line;
    T* const result = node.get();
    program_.nodes.push_back(std::move(node));
    return result;
  }
  [[nodiscard]] Symbol symbol(const std::string& name);
  Expr* constant(std::uint32_t line, Value value);
  void note_unknown(std::uint32_t line, std::string message) { unknown_.push_back({line, std::move(message)}); }
  /// The unknown names found since there were `before` of them are errors.
  [[nodiscard]] Status refuse_unknown(std::size_t before) const;
  /// ... only fail where they run.
  void allow_unknown(std::size_t before) { unknown_.resize(before, Unknown{}); }

  // statements (parser.cc)
  using EndNames = std::initializer_list<std::string_view>;
  Result<Body> body(EndNames end_names);
  Result<Body> block_body(EndNames end_names);
  Result<Body> scoped_body(EndNames end_names);
  Result<Statement*> statement(EndNames end_names);
  Result<Statement*> if_statement(std::uint32_t line);
  Result<Statement*> for_statement(std::uint32_t line);
  Result<Statement*> set_statement(std::uint32_t line);
  Result<Statement*> macro_statement(std::uint32_t line);
  Result<Statement*> call_statement(std::uint32_t line);
  Result<Statement*> filter_statement(std::uint32_t line);
  Result<Statement*> with_statement(std::uint32_t line);
  Result<Statement*> generation_statement(std::uint32_t line);
  Result<Statement*> print_statement(std::uint32_t line);
  Result<Statement*> jump_statement(std::uint32_t line, StatementKind kind);
  [[nodiscard]] Status signature(Signature& signature);
  [[nodiscard]] Status macro_body(MacroNode& macro, std::string_view end_name);
  [[nodiscard]] tl::unexpected<Error> unknown_tag(EndNames end_names) const;
  [[nodiscard]] tl::unexpected<Error> unfinished(EndNames end_names) const;

  // expressions (expression_parser.cc, operand_parser.cc)
  enum class Conditional : bool { kForbidden, kAllowed };
  Result<Expr*> tuple_or_expression(Conditional conditional, std::string_view end_name = {});
  Result<Expr*> parenthesised();
  Result<Expr*> expression(Conditional conditional = Conditional::kAllowed);
  Result<Expr*> conditional_expression();
  Result<Expr*> logical(ExprKind kind);
  Result<Expr*> negation();
  Result<Expr*> comparison();
  Result<Expr*> sum();
  Result<Expr*> concatenation();
  Result<Expr*> product();
  Result<Expr*> power();
  using Operand = Result<Expr*> (Parser::*)();
  Result<Expr*> arithmetic_chain(Operand operand, std::initializer_list<std::pair<std::string_view, ArithmeticOp>> ops);
  Result<Expr*> unary(bool with_filters);
  Result<Expr*> primary();
  Result<Expr*> number();
  Result<Expr*> list();
  Result<Expr*> dict();
  Result<Expr*> name_reference();
  Result<Expr*> postfix(Expr* expr);
  Result<Expr*> filters(Expr* expr);
  Result<Expr*> subscript(Expr* object);
  Result<Expr*> bracket_item(Expr* object, std::uint32_t line);
  Result<Expr*> call(Expr* callee);
  Result<FilterExpr*> filter(Expr* operand);
  Result<Expr*> test(Expr* operand);
  [[nodiscard]] Status call_arguments(CallArguments& arguments);
  Result<Target> target(bool with_members, std::string_view end_name = {});
  Result<Target> single_target(bool with_members);
  [[nodiscard]] bool at_tuple_end(std::string_view end_name) const;

  std::vector<Token> tokens_;
  std::size_t at_ = 0;
  TemplateLimits limits_;
  std::size_t level_ = 0;
  std::size_t loops_ = 0;  // loops around the current statement, within the same macro
  Program program_;
  std::map<std::string, Symbol, std::less<>> symbols_;
  std::vector<Unknown> unknown_;
  std::vector<Signature*> macros_;  // those being parsed: they learn which special names their bodies use
};

}  // namespace vernier::jinja
