// The compiled form of a template: a tree whose nodes are owned by one Program, so that destroying it never recurses.
// Expression and statement nodes carry the line they begin on.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "chat/jinja/operators.h"
#include "chat/jinja/value.h"

namespace vernier::jinja {

/// The number of a variable name within one template.
using Symbol = std::uint32_t;

enum class ExprKind : std::uint8_t {
  kConstant,
  kName,
  kConcat,
  kArithmetic,
  kNegate,
  kPlus,
  kNot,
  kAnd,
  kOr,
  kCompare,
  kConditional,
  kList,
  kTuple,
  kDict,
  kAttribute,
  kItem,
  kSlice,
  kCall,
  kFilter,
  kTest,
};

enum class StatementKind : std::uint8_t {
  kOutput,
  kIf,
  kFor,
  kBreak,
  kContinue,
  kSet,
  kSetBlock,
  kMacro,
  kCallBlock,
  kFilterBlock,
  kScope,
};

struct Node {
  Node() = default;
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;
  virtual ~Node() = default;
  std::uint32_t line = 0;
};

// --- expressions -----------------------------------------------------------------------------------------------------

struct Expr : Node {
  explicit Expr(ExprKind expr_kind) : kind(expr_kind) {}
  const ExprKind kind;
};

struct ConstantExpr : Expr {
  ConstantExpr() : Expr(ExprKind::kConstant) {}
  Value value;
};
struct NameExpr : Expr {
  NameExpr() : Expr(ExprKind::kName) {}
  Symbol symbol = 0;
  Value undefined;  // what it is while nothing is assigned
};
/// kConcat, kAnd, kOr, kList, kTuple: any number of operands. kNegate, kPlus, kNot: one.
struct OperandsExpr : Expr {
  using Expr::Expr;
  std::vector<Expr*> operands;
};
/// A chain of operators of one level of precedence, from left to right: a + b - c.
struct ArithmeticExpr : Expr {
  ArithmeticExpr() : Expr(ExprKind::kArithmetic) {}
  Expr* first = nullptr;
  std::vector<std::pair<ArithmeticOp, Expr*>> rest;
};
struct CompareExpr : Expr {
  CompareExpr() : Expr(ExprKind::kCompare) {}
  Expr* first = nullptr;
  std::vector<std::pair<CompareOp, Expr*>> rest;
};
struct ConditionalExpr : Expr {
  ConditionalExpr() : Expr(ExprKind::kConditional) {}
  Expr* test = nullptr;
  Expr* when_true = nullptr;
  Expr* when_false = nullptr;  // may be absent: undefined then
};
struct DictExpr : Expr {
  DictExpr() : Expr(ExprKind::kDict) {}
  std::vector<std::pair<Expr*, Expr*>> entries;
};
struct AttributeExpr : Expr {
  AttributeExpr() : Expr(ExprKind::kAttribute) {}
  Expr* object = nullptr;
  std::string name;
};
struct ItemExpr : Expr {
  ItemExpr() : Expr(ExprKind::kItem) {}
  Expr* object = nullptr;
  Expr* key = nullptr;
};
struct SliceExpr : Expr {
  SliceExpr() : Expr(ExprKind::kSlice) {}
  Expr* object = nullptr;
  Expr* start = nullptr;  // each of these may be absent
  Expr* stop = nullptr;
  Expr* step = nullptr;
};
struct CallArguments {
  std::vector<Expr*> positional;
  std::vector<std::pair<std::string, Expr*>> keyword;
  Expr* more_positional = nullptr;  // *args
  Expr* more_keyword = nullptr;     // **kwargs
};
struct CallExpr : Expr {
  CallExpr() : Expr(ExprKind::kCall) {}
  Expr* callee = nullptr;
  CallArguments arguments;
};
/// kFilter or kTest. `call` is null for a name nobody knows in a branch that may never run.
struct FilterExpr : Expr {
  using Expr::Expr;
  Expr* operand = nullptr;  // absent in filter blocks: the block's text then
  std::string name;
  Builtin call = nullptr;
  CallArguments arguments;
};

// --- statements ------------------------------------------------------------------------------------------------------

struct Statement : Node {
  explicit Statement(StatementKind statement_kind) : kind(statement_kind) {}
  const StatementKind kind;
};
using Body = std::vector<Statement*>;

/// Template text and the values of {{ }}.
struct OutputNode : Statement {
  OutputNode() : Statement(StatementKind::kOutput) {}
  std::vector<Expr*> parts;
};
struct IfNode : Statement {
  IfNode() : Statement(StatementKind::kIf) {}
  std::vector<std::pair<Expr*, Body>> branches;
  Body otherwise;
};
/// What can stand left of `=`: a name, a member of a namespace, or a tuple of targets.
struct Target {
  enum class Kind : std::uint8_t { kName, kMember, kTuple };
  Kind kind = Kind::kName;
  std::uint32_t line = 0;
  Symbol symbol = 0;
  std::string member;
  std::vector<Target> items;
};
struct ForNode : Statement {
  ForNode() : Statement(StatementKind::kFor) {}
  Target target;
  Expr* iterable = nullptr;
  Expr* condition = nullptr;  // may be absent
  bool recursive = false;
  Body body;
  Body otherwise;
};
struct JumpNode : Statement {
  using Statement::Statement;
};
struct SetNode : Statement {
  SetNode() : Statement(StatementKind::kSet) {}
  Target target;
  Expr* value = nullptr;
};
struct SetBlockNode : Statement {
  SetBlockNode() : Statement(StatementKind::kSetBlock) {}
  Target target;
  Expr* filter = nullptr;  // may be absent
  Body body;
};
struct Parameter {
  Symbol symbol = 0;
  std::string name;
  Expr* fallback = nullptr;  // may be absent
};
struct Signature {
  std::vector<Parameter> parameters;
  bool uses_caller = false;
  bool uses_kwargs = false;
  bool uses_varargs = false;
};
struct MacroNode : Statement {
  MacroNode() : Statement(StatementKind::kMacro) {}
  Symbol symbol = 0;
  std::string name_text;
  Signature signature;
  Body body;
};
/// {% call(a, b) macro(...) %}body{% endcall %}: the body becomes the macro `caller`.
struct CallBlockNode : Statement {
  CallBlockNode() : Statement(StatementKind::kCallBlock) {}
  CallExpr* call = nullptr;
  MacroNode* caller = nullptr;
};
struct FilterBlockNode : Statement {
  FilterBlockNode() : Statement(StatementKind::kFilterBlock) {}
  Expr* filter = nullptr;
  Body body;
};
/// {% with %} and {% generation %}: a body with its own variables.
struct ScopeNode : Statement {
  ScopeNode() : Statement(StatementKind::kScope) {}
  std::vector<std::pair<Target, Expr*>> assignments;
  Body body;
};

// --- the whole -------------------------------------------------------------------------------------------------------

/// Symbols with a meaning of their own; the parser gives them these numbers.
enum ReservedSymbol : Symbol { kLoopSymbol, kCallerSymbol, kKwargsSymbol, kVarargsSymbol, kReservedSymbols };

struct Program {
  std::vector<std::unique_ptr<Node>> nodes;
  std::vector<std::string> symbols;  // names by number
  Body body;
};

}  // namespace vernier::jinja
