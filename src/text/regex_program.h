// Internals of regex.h: the syntax tree that the parser makes, and the program that the compiler makes of it.
#pragma once

#include <cstdint>
#include <limits>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/code_point_set.h"

namespace vernier::text_internal {

inline constexpr std::uint32_t kUnboundedRepeats = std::numeric_limits<std::uint32_t>::max();

enum class RepeatMode : std::uint8_t { kGreedy, kLazy, kPossessive };

struct RegexNode {
  enum class Kind : std::uint8_t {
    kSet,            // one character of sets[set]
    kConcatenation,  // children in order; none: the empty text
    kAlternation,    // the first child that leads to a match
    kRepeat,         // children[0], min to max times
    kLookahead,      // children[0] must (or with `negative` must not) match here
    kTextBegin,      // \A
    kTextEnd,        // \z
    kLineBegin,      // ^
    kLineEnd,        // $
    kWordBoundary,   // \b, with `negative` \B
  };
  Kind kind = Kind::kConcatenation;
  bool negative = false;
  RepeatMode mode = RepeatMode::kGreedy;
  std::uint32_t set = 0;
  std::uint32_t min = 0;
  std::uint32_t max = 0;
  std::vector<std::uint32_t> children;  // indices into RegexTree::nodes
};

struct RegexTree {
  std::vector<RegexNode> nodes;
  std::vector<CodePointSet> sets;
  std::uint32_t root = 0;
};

/// Parses a pattern; the tree's depth is bounded.
Result<RegexTree> parse_regex(std::string_view pattern);

struct RegexInstruction {
  enum class Op : std::uint8_t {
    kSet,          // consume one character of sets[a], or fail
    kSplit,        // try a, and when that fails b; `visit` is its memo bit
    kJump,         // go on at a
    kRun,          // consume as many characters of sets[a] as there are, without giving back; `visit` numbers the run
    kOptionalSet,  // consume a character of sets[a] if there is one, without giving back
    kLookSet,      // the next character must (not) exist and be of sets[a]
    kLook,         // the program at pc + 1 must (not) match here, then go on at a; memo bits visit and visit + 1
    kTextBegin,
    kTextEnd,
    kLineBegin,
    kLineEnd,
    kWordBoundary,
    kMatch,  // of the whole program or of a look-ahead
  };
  Op op = Op::kMatch;
  bool negative = false;
  bool in_lookahead = false;  // a split there has a second memo bit, visit + 1: known to succeed
  std::uint32_t a = 0;
  std::uint32_t b = 0;
  std::uint32_t visit = 0;
};

struct RegexProgram {
  std::vector<RegexInstruction> code;
  std::vector<CodePointSet> sets;
  CodePointSet word;
  std::uint32_t num_visits = 0;
  std::uint32_t num_runs = 0;
};

/// Compiles a tree. Refuses unbounded repetition of what may match the empty text, and programs that grow too large.
Result<RegexProgram> compile_regex(RegexTree tree);

}  // namespace vernier::text_internal
