// Runs a compiled template once. Walks the tree; statements are in interpreter.cc, expressions in evaluator.cc.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "chat/jinja/builders.h"
#include "chat/jinja/node.h"

namespace vernier::jinja {

/// Variables of one loop pass, macro call or block. Macros keep the scope they were defined in.
struct Scope : CyclicObject {
  std::vector<std::pair<Symbol, Value>> variables;
  std::shared_ptr<Scope> parent;  // null: the template itself, whose variables the interpreter holds
  bool kept = false;              // by the runtime, until the end
  void clear() override { variables.clear(); }
};

class Interpreter {
 public:
  Interpreter(const Program& program, const TemplateLimits& limits) : program_(program), runtime_(limits) {}
  Interpreter(const Interpreter&) = delete;
  Interpreter& operator=(const Interpreter&) = delete;
  ~Interpreter();

  /// Renders; call once.
  Result<std::string> run(const TemplateRequest& request);

 private:
  enum class Flow : std::uint8_t { kNext, kBreak, kContinue };
  using ScopePtr = std::shared_ptr<Scope>;

  /// Makes `scope` the current one until destruction.
  class ScopeSwitch {
   public:
    ScopeSwitch(Interpreter& interpreter, ScopePtr scope)
        : interpreter_(interpreter), before_(std::exchange(interpreter.scope_, std::move(scope))) {}
    ScopeSwitch(const ScopeSwitch&) = delete;
    ScopeSwitch& operator=(const ScopeSwitch&) = delete;
    ~ScopeSwitch() { interpreter_.scope_ = std::move(before_); }

   private:
    Interpreter& interpreter_;
    ScopePtr before_;
  };

  // variables
  [[nodiscard]] Status set_up(const TemplateRequest& request);
  [[nodiscard]] Result<Value> global(const std::string& name, const TemplateRequest& request);
  [[nodiscard]] const Value* lookup(Symbol symbol) const;
  [[nodiscard]] Status define(Symbol symbol, Value value);
  [[nodiscard]] Status assign(const Target& target, const Value& value);
  [[nodiscard]] static ScopePtr inner_scope(ScopePtr parent);
  /// The current scope, to be kept by a macro or a recursive loop.
  [[nodiscard]] Result<ScopePtr> captured_scope();

  // Statements. Each kind keeps a stack frame of its own: inlined into one function, their frames would add up, and the
  // stack is what nested macros use up.
  Result<Flow> run_body(const Body& body);
  Result<Flow> run_scoped(const Body& body);
  [[nodiscard, gnu::noinline]] Status run_set(const SetNode& node);
  Result<Flow> run_statement(const Statement& statement);
  [[gnu::noinline]] Result<Flow> run_if(const IfNode& node);
  [[gnu::noinline]] Result<Flow> run_for(const ForNode& node);
  [[gnu::noinline]] Result<Flow> run_loop(const ForNode& node, const Value& iterable, std::size_t depth0);
  [[gnu::noinline]] Result<Flow> run_pass(const ForNode& node, const Value& loop, const ScopePtr& scope);
  [[gnu::noinline]] Result<Value> filtered_items(const ForNode& node, const Value& items);
  [[gnu::noinline]] Result<Flow> run_set_block(const SetBlockNode& node);
  [[gnu::noinline]] Result<Flow> run_filter_block(const FilterBlockNode& node);
  [[gnu::noinline]] Result<Flow> run_with(const ScopeNode& node);
  [[nodiscard, gnu::noinline]] Status run_output(const OutputNode& node);
  [[nodiscard, gnu::noinline]] Status run_call_block(const CallBlockNode& node);
  [[nodiscard]] Status define_macro(const MacroNode& node);
  [[nodiscard]] Status write(const Value& value);
  /// What `body` prints, as a string. Unless it jumps out of a loop: `flow` says so.
  Result<Value> capture(const Body& body, Flow& flow);
  Result<Value> make_macro(const MacroNode& node);

  // expressions: frames of their own, too
  Result<Value> eval(const Expr& expr);
  [[gnu::noinline]] Result<Value> eval_kind(const Expr& expr);
  [[gnu::noinline]] Result<Value> eval_name(const NameExpr& expr);
  [[gnu::noinline]] Result<Value> eval_concat(const OperandsExpr& expr);
  [[gnu::noinline]] Result<Value> eval_logical(const OperandsExpr& expr, bool stops_at);
  [[gnu::noinline]] Result<Value> eval_unary(const OperandsExpr& expr);
  [[gnu::noinline]] Result<Value> eval_arithmetic(const ArithmeticExpr& expr);
  [[gnu::noinline]] Result<Value> eval_compare(const CompareExpr& expr);
  [[gnu::noinline]] Result<Value> eval_conditional(const ConditionalExpr& expr);
  [[gnu::noinline]] Result<Value> eval_sequence(const OperandsExpr& expr, SequenceType type);
  [[gnu::noinline]] Result<Value> eval_dict(const DictExpr& expr);
  [[gnu::noinline]] Result<Value> eval_attribute(const AttributeExpr& expr);
  [[gnu::noinline]] Result<Value> eval_slice(const SliceExpr& expr);
  [[gnu::noinline]] Result<Value> eval_item(const ItemExpr& expr);
  [[gnu::noinline]] Result<Value> eval_call(const CallExpr& expr, const Value* caller);
  [[gnu::noinline]] Result<Value> eval_filter(const FilterExpr& expr);
  [[nodiscard]] Status eval_arguments(const CallArguments& arguments, Args& args);
  Result<Value> call(const Value& callee, const Args& args);
  [[gnu::noinline]] Result<Value> call_macro(const Value& macro, const Args& args);
  [[gnu::noinline]] Result<Value> call_loop(const Value& loop, const Args& args);
  [[nodiscard, gnu::noinline]] Status bind_parameters(const MacroNode& node, const Args& args);
  [[nodiscard, gnu::noinline]] Status bind_special(const MacroNode& node, const Args& args, std::vector<bool> used);

  /// Puts the line in front of an error's message, unless an inner node did.
  void locate(Error& error, std::uint32_t line);

  const Program& program_;
  Runtime runtime_;  // outlives every value below
  std::vector<Value> root_;
  std::vector<bool> root_defined_;
  ScopePtr scope_;
  TextBuilder* out_ = nullptr;
  const Value* filter_input_ = nullptr;  // what a filter block filters
  bool located_ = false;
};

}  // namespace vernier::jinja
