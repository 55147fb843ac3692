#include "chat/jinja/interpreter.h"

#include "chat/jinja/builtins.h"
#include "chat/jinja/clock_format.h"
#include "chat/jinja/value_text.h"

namespace vernier::jinja {

// --- start and end ---------------------------------------------------------------------------------------------------

Interpreter::~Interpreter() {
  // Namespaces, scopes and loops may hold themselves; emptying them breaks the circles.
  for (const auto& object : runtime_.cyclic) object->clear();
}

Result<Value> Interpreter::global(const std::string& name, const TemplateRequest& request) {
  if (name == "messages") return from_json(runtime_, request.messages);
  if (name == "tools") return from_json(runtime_, request.tools);
  if (name == "documents") return from_json(runtime_, request.documents);
  if (name == "add_generation_prompt") return Value::boolean(request.add_generation_prompt);
  if (name == "bos_token" && request.bos_token) return make_string(runtime_, *request.bos_token);
  if (name == "eos_token" && request.eos_token) return make_string(runtime_, *request.eos_token);
  if (const Json* value = request.kwargs.find(name)) return from_json(runtime_, *value);
  if (const Builtin function = find_function(name)) return make_function(name, function);
  return Value();
}

Status Interpreter::set_up(const TemplateRequest& request) {
  runtime_.now = request.now ? *request.now : local_time_now();
  root_.resize(program_.symbols.size());
  root_defined_.resize(program_.symbols.size());
  for (std::size_t i = 0; i < program_.symbols.size(); ++i) {
    VN_ASSIGN(root_[i], global(program_.symbols[i], request));
    root_defined_[i] = !root_[i].is_undefined();
  }
  return {};
}

Result<std::string> Interpreter::run(const TemplateRequest& request) {
  VN_TRY(set_up(request));
  TextBuilder output(runtime_);
  out_ = &output;
  VN_TRY(run_body(program_.body));
  return output.take();
}

void Interpreter::locate(Error& error, std::uint32_t line) {
  if (located_) return;
  located_ = true;
  error.message = fmt::format("template line {}: {}", line, error.message);
}

// --- variables -------------------------------------------------------------------------------------------------------

const Value* Interpreter::lookup(Symbol symbol) const {
  for (const Scope* scope = scope_.get(); scope != nullptr; scope = scope->parent.get()) {
    for (const auto& [name, value] : scope->variables) {
      if (name == symbol) return &value;
    }
  }
  return root_defined_[symbol] ? &root_[symbol] : nullptr;
}

Status Interpreter::define(Symbol symbol, Value value) {
  if (!scope_) {
    root_[symbol] = std::move(value);
    root_defined_[symbol] = true;
    return {};
  }
  for (auto& [name, variable] : scope_->variables) {
    if (name != symbol) continue;
    variable = std::move(value);
    return {};
  }
  VN_TRY(scope_->charge.grow(runtime_.budget, 2 * sizeof(scope_->variables[0])));
  scope_->variables.emplace_back(symbol, std::move(value));
  return {};
}

Status Interpreter::assign(const Target& target, const Value& value) {
  if (target.kind == Target::Kind::kName) return define(target.symbol, value);
  if (target.kind == Target::Kind::kMember) {
    const Value* object = lookup(target.symbol);
    if (object == nullptr || !object->is(Kind::kNamespace)) {
      return error("cannot assign attribute on non-namespace object");
    }
    return object->name_space().set(runtime_, target.member, value);
  }
  VN_ASSIGN(const Value items, iterate(runtime_, value));
  const auto& values = items.sequence().items;
  if (values.size() != target.items.size()) {
    return error("{} values to unpack (expected {}, got {})",
                 values.size() < target.items.size() ? "not enough" : "too many", target.items.size(), values.size());
  }
  for (std::size_t i = 0; i < values.size(); ++i) VN_TRY(assign(target.items[i], values[i]));
  return {};
}

Interpreter::ScopePtr Interpreter::inner_scope(ScopePtr parent) {
  auto scope = std::make_shared<Scope>();
  scope->parent = std::move(parent);
  return scope;
}

Result<Interpreter::ScopePtr> Interpreter::captured_scope() {
  if (scope_ && !scope_->kept) {
    VN_TRY(scope_->charge.grow(runtime_.budget, sizeof(Scope) + 2 * sizeof(runtime_.cyclic[0])));
    scope_->kept = true;
    runtime_.cyclic.push_back(scope_);
  }
  return scope_;
}

// --- statements ------------------------------------------------------------------------------------------------------

Result<Interpreter::Flow> Interpreter::run_body(const Body& body) {
  const CallLevel level(runtime_);
  VN_TRY(level.status());
  for (const Statement* statement : body) {
    Status spent = runtime_.budget.spend();
    Result<Flow> flow = spent ? run_statement(*statement) : tl::unexpected(spent.error());
    if (!flow) {
      locate(flow.error(), statement->line);
      return flow;
    }
    if (*flow != Flow::kNext) return flow;
  }
  return Flow::kNext;
}

Result<Interpreter::Flow> Interpreter::run_scoped(const Body& body) {
  const ScopeSwitch inside(*this, inner_scope(scope_));
  return run_body(body);
}

Result<Interpreter::Flow> Interpreter::run_statement(const Statement& statement) {
  switch (statement.kind) {
    case StatementKind::kOutput: VN_TRY(run_output(static_cast<const OutputNode&>(statement))); break;
    case StatementKind::kIf: return run_if(static_cast<const IfNode&>(statement));
    case StatementKind::kFor: return run_for(static_cast<const ForNode&>(statement));
    case StatementKind::kBreak: return Flow::kBreak;
    case StatementKind::kContinue: return Flow::kContinue;
    case StatementKind::kSet: VN_TRY(run_set(static_cast<const SetNode&>(statement))); break;
    case StatementKind::kSetBlock: return run_set_block(static_cast<const SetBlockNode&>(statement));
    case StatementKind::kMacro: VN_TRY(define_macro(static_cast<const MacroNode&>(statement))); break;
    case StatementKind::kCallBlock: VN_TRY(run_call_block(static_cast<const CallBlockNode&>(statement))); break;
    case StatementKind::kFilterBlock: return run_filter_block(static_cast<const FilterBlockNode&>(statement));
    case StatementKind::kScope: return run_with(static_cast<const ScopeNode&>(statement));
  }
  return Flow::kNext;
}

Status Interpreter::run_set(const SetNode& node) {
  VN_ASSIGN(const Value value, eval(*node.value));
  return assign(node.target, value);
}

Status Interpreter::write(const Value& value) {
  const std::size_t limit = runtime_.budget.limits().max_output_bytes;
  const std::size_t before = out_->text().size();
  VN_TRY(append_str(runtime_, *out_, value));
  if (out_->text().size() > limit) return error("the output exceeds {} bytes", limit);
  return runtime_.budget.spend_text(out_->text().size() - before);
}

Status Interpreter::run_output(const OutputNode& node) {
  for (const Expr* part : node.parts) {
    if (part->kind == ExprKind::kConstant) {
      VN_TRY(write(static_cast<const ConstantExpr*>(part)->value));
      continue;
    }
    VN_ASSIGN(const Value value, eval(*part));
    Status written = write(value);
    if (!written) {
      locate(written.error(), part->line);
      return written;
    }
  }
  return {};
}

Result<Interpreter::Flow> Interpreter::run_if(const IfNode& node) {
  for (const auto& [test, body] : node.branches) {
    VN_ASSIGN(const Value value, eval(*test));
    if (truth(value)) return run_body(body);
  }
  return run_body(node.otherwise);
}

Result<Interpreter::Flow> Interpreter::run_for(const ForNode& node) {
  VN_ASSIGN(const Value iterable, eval(*node.iterable));
  return run_loop(node, iterable, 0);
}

/// The items for which the loop's condition holds.
Result<Value> Interpreter::filtered_items(const ForNode& node, const Value& items) {
  ListBuilder kept(runtime_);
  for (const Value& item : items.sequence().items) {
    const ScopeSwitch inside(*this, inner_scope(scope_));
    VN_TRY(assign(node.target, item));
    VN_ASSIGN(const Value wanted, eval(*node.condition));
    if (truth(wanted)) kept.push(item);
  }
  return kept.finish();
}

Result<Interpreter::Flow> Interpreter::run_loop(const ForNode& node, const Value& iterable, std::size_t depth0) {
  VN_ASSIGN(Value items, iterate(runtime_, iterable));
  if (node.condition != nullptr) {
    VN_ASSIGN(items, filtered_items(node, items));
  }
  if (items.sequence().items.empty()) return run_scoped(node.otherwise);
  VN_ASSIGN(auto object, make_object<LoopObject>(runtime_, 0, items.depth() + 1));
  object->items = items;
  object->depth0 = depth0;
  object->node = &node;
  if (node.recursive) {
    VN_ASSIGN(object->scope, captured_scope());
    VN_TRY(object->charge.grow(runtime_.budget, 2 * sizeof(runtime_.cyclic[0])));
    runtime_.cyclic.push_back(object);
  }
  const Value loop(Kind::kLoop, object);
  ScopePtr scope;
  for (std::size_t i = 0; i < items.sequence().items.size(); ++i) {
    VN_TRY(runtime_.budget.spend());
    object->index0 = i;
    // A pass begins without the variables of the one before; a macro may still hold those.
    if (!scope || scope->kept) {
      scope = inner_scope(scope_);
    } else {
      scope->clear();
    }
    VN_ASSIGN(const Flow flow, run_pass(node, loop, scope));
    if (flow == Flow::kBreak) break;
  }
  return Flow::kNext;
}

Result<Interpreter::Flow> Interpreter::run_pass(const ForNode& node, const Value& loop, const ScopePtr& scope) {
  const ScopeSwitch inside(*this, scope);
  const LoopObject& state = loop.loop();
  VN_TRY(define(kLoopSymbol, loop));
  VN_TRY(assign(node.target, state.items.sequence().items[state.index0]));
  return run_body(node.body);
}

Result<Value> Interpreter::capture(const Body& body, Flow& flow) {
  TextBuilder text(runtime_);
  TextBuilder* const before = std::exchange(out_, &text);
  const Result<Flow> result = run_scoped(body);
  out_ = before;
  VN_TRY(result);
  flow = *result;
  return text.finish();
}

Result<Interpreter::Flow> Interpreter::run_set_block(const SetBlockNode& node) {
  Flow flow = Flow::kNext;
  VN_ASSIGN(Value text, capture(node.body, flow));
  if (flow != Flow::kNext) return flow;
  if (node.filter != nullptr) {
    const Value* const before = std::exchange(filter_input_, &text);
    Result<Value> filtered = eval(*node.filter);
    filter_input_ = before;
    VN_ASSIGN(text, std::move(filtered));
  }
  VN_TRY(assign(node.target, text));
  return Flow::kNext;
}

Result<Interpreter::Flow> Interpreter::run_filter_block(const FilterBlockNode& node) {
  Flow flow = Flow::kNext;
  VN_ASSIGN(const Value text, capture(node.body, flow));
  if (flow != Flow::kNext) return flow;
  const Value* const before = std::exchange(filter_input_, &text);
  Result<Value> filtered = eval(*node.filter);
  filter_input_ = before;
  VN_TRY(filtered);
  VN_TRY(write(*filtered));
  return Flow::kNext;
}

Result<Interpreter::Flow> Interpreter::run_with(const ScopeNode& node) {
  std::vector<Value> values;  // all of them see the variables outside
  for (const auto& [target, expr] : node.assignments) {
    VN_TRY(runtime_.budget.spend());
    VN_ASSIGN(Value value, eval(*expr));
    values.push_back(std::move(value));
  }
  const ScopeSwitch inside(*this, inner_scope(scope_));
  for (std::size_t i = 0; i < values.size(); ++i) VN_TRY(assign(node.assignments[i].first, values[i]));
  return run_body(node.body);
}

Result<Value> Interpreter::make_macro(const MacroNode& node) {
  VN_ASSIGN(auto object, make_object<MacroObject>(runtime_, 0, 1));
  object->node = &node;
  VN_ASSIGN(object->scope, captured_scope());
  return Value(Kind::kMacro, std::move(object));
}

Status Interpreter::define_macro(const MacroNode& node) {
  VN_ASSIGN(Value macro, make_macro(node));
  return define(node.symbol, std::move(macro));
}

Status Interpreter::run_call_block(const CallBlockNode& node) {
  VN_ASSIGN(const Value caller, make_macro(*node.caller));
  VN_ASSIGN(const Value text, eval_call(*node.call, &caller));
  return write(text);
}

}  // namespace vernier::jinja
