// Syntax tree to program. The recursion follows the tree, whose depth the parser bounds.
#include <algorithm>

#include "text/regex_program.h"

namespace vernier::text_internal {
namespace {

constexpr std::size_t kMaxInstructions = 2048;

using Kind = RegexNode::Kind;
using Op = RegexInstruction::Op;

class Compiler {
 public:
  explicit Compiler(RegexTree tree) : tree_(std::move(tree)), can_be_empty_(tree_.nodes.size()) {
    // Children come before their parents, so that one pass suffices.
    for (std::size_t i = 0; i < tree_.nodes.size(); ++i) can_be_empty_[i] = may_match_empty(tree_.nodes[i]);
  }

  Result<RegexProgram> compile() {
    VN_TRY(emit(tree_.root, false));
    add({.op = Op::kMatch});
    program_.sets = std::move(tree_.sets);
    program_.word = CodePointSet::word();
    return std::move(program_);
  }

 private:
  [[nodiscard]] bool may_match_empty(const RegexNode& node) const {
    const auto empty = [&](std::uint32_t child) { return static_cast<bool>(can_be_empty_[child]); };
    switch (node.kind) {
      case Kind::kSet: return false;
      case Kind::kConcatenation: return std::ranges::all_of(node.children, empty);
      case Kind::kAlternation: return std::ranges::any_of(node.children, empty);
      case Kind::kRepeat: return node.min == 0 || empty(node.children.front());
      default: return true;
    }
  }

  std::uint32_t here() const { return static_cast<std::uint32_t>(program_.code.size()); }
  std::uint32_t add(RegexInstruction instruction) {
    program_.code.push_back(instruction);
    return here() - 1;
  }
  /// A split has one memo bit, and within a look-ahead two.
  std::uint32_t add_split(bool in_lookahead) {
    const std::uint32_t visit = program_.num_visits;
    program_.num_visits += in_lookahead ? 2 : 1;
    return add({.op = Op::kSplit, .in_lookahead = in_lookahead, .visit = visit});
  }
  /// Lets a split prefer the instruction behind it (greedy) or `other` (lazy).
  void direct(std::uint32_t split, std::uint32_t other, RepeatMode mode) {
    RegexInstruction& instruction = program_.code[split];
    instruction.a = mode == RepeatMode::kLazy ? other : split + 1;
    instruction.b = mode == RepeatMode::kLazy ? split + 1 : other;
  }

  Status emit(std::uint32_t index, bool in_lookahead) {
    if (program_.code.size() > kMaxInstructions) {
      return fail(ErrorCode::kUnsupported, "regular expression grows to more than {} steps", kMaxInstructions);
    }
    const RegexNode& node = tree_.nodes[index];
    switch (node.kind) {
      case Kind::kSet: add({.op = Op::kSet, .a = node.set}); return {};
      case Kind::kConcatenation:
        for (const std::uint32_t child : node.children) VN_TRY(emit(child, in_lookahead));
        return {};
      case Kind::kAlternation: return emit_alternation(node, in_lookahead);
      case Kind::kRepeat:
        return node.mode == RepeatMode::kPossessive ? emit_possessive(node) : emit_repeat(node, in_lookahead);
      case Kind::kLookahead: return emit_lookahead(node);
      case Kind::kTextBegin: add({.op = Op::kTextBegin}); return {};
      case Kind::kTextEnd: add({.op = Op::kTextEnd}); return {};
      case Kind::kLineBegin: add({.op = Op::kLineBegin}); return {};
      case Kind::kLineEnd: add({.op = Op::kLineEnd}); return {};
      case Kind::kWordBoundary: add({.op = Op::kWordBoundary, .negative = node.negative}); return {};
    }
    return fail(ErrorCode::kInternal, "regular expression: node of unknown kind");
  }

  Status emit_alternation(const RegexNode& node, bool in_lookahead) {
    std::vector<std::uint32_t> jumps;
    for (std::size_t i = 0; i < node.children.size(); ++i) {
      const bool last = i + 1 == node.children.size();
      const std::uint32_t split = last ? 0 : add_split(in_lookahead);
      VN_TRY(emit(node.children[i], in_lookahead));
      if (last) break;
      jumps.push_back(add({.op = Op::kJump}));
      direct(split, here(), RepeatMode::kGreedy);
    }
    for (const std::uint32_t jump : jumps) program_.code[jump].a = here();
    return {};
  }

  Status emit_repeat(const RegexNode& node, bool in_lookahead) {
    const std::uint32_t child = node.children.front();
    for (std::uint32_t i = 0; i < node.min; ++i) VN_TRY(emit(child, in_lookahead));
    if (node.max == kUnboundedRepeats) {
      // Without this the memo bits, which take a second visit for a failure, could hide matches.
      if (can_be_empty_[child]) {
        return fail(
            ErrorCode::kUnsupported,
            "regular expression: unbounded repetition of something that may match the empty text isn't supported");
      }
      const std::uint32_t split = add_split(in_lookahead);
      VN_TRY(emit(child, in_lookahead));
      add({.op = Op::kJump, .a = split});
      direct(split, here(), node.mode);
      return {};
    }
    std::vector<std::uint32_t> splits;
    for (std::uint32_t i = node.min; i < node.max; ++i) {
      splits.push_back(add_split(in_lookahead));
      VN_TRY(emit(child, in_lookahead));
    }
    for (const std::uint32_t split : splits) direct(split, here(), node.mode);
    return {};
  }

  Status emit_possessive(const RegexNode& node) {
    const std::uint32_t set = tree_.nodes[node.children.front()].set;
    if (node.max == 1) {
      add({.op = Op::kOptionalSet, .a = set});
      return {};
    }
    if (node.min == 1) add({.op = Op::kSet, .a = set});
    add({.op = Op::kRun, .a = set, .visit = program_.num_runs++});
    return {};
  }

  Status emit_lookahead(const RegexNode& node) {
    const RegexNode& inner = tree_.nodes[node.children.front()];
    if (inner.kind == Kind::kSet) {
      add({.op = Op::kLookSet, .negative = node.negative, .a = inner.set});
      return {};
    }
    const std::uint32_t look = add({.op = Op::kLook, .negative = node.negative, .visit = program_.num_visits});
    program_.num_visits += 2;
    VN_TRY(emit(node.children.front(), true));
    add({.op = Op::kMatch});
    program_.code[look].a = here();
    return {};
  }

  RegexTree tree_;
  std::vector<std::uint8_t> can_be_empty_;
  RegexProgram program_;
};

}  // namespace

Result<RegexProgram> compile_regex(RegexTree tree) { return Compiler(std::move(tree)).compile(); }

}  // namespace vernier::text_internal
