// Backtracking search with a memo, on an explicit stack: each (split, position) is entered at most once while it fails,
// whatever the start of the attempt, so that all matches of a text together take O(program * text).
//
// The memo is a row of bits for each position. A bit says "entered". Attempts go from left to right and never look
// back, and an entered split that isn't part of a match has failed for good; those that are part of a match lie at
// positions up to its end, so clearing the row of the match's end is all that the next attempt needs. Look-aheads reach
// beyond: their splits have a second bit, "succeeds", set for what led to a success.
#include <algorithm>
#include <optional>

#include "text/regex.h"
#include "text/regex_program.h"

namespace vernier::text_internal {
namespace {

constexpr std::uint64_t kMaxMemoBytes = std::uint64_t{1} << 30U;
constexpr std::uint32_t kNone = 0xFFFFFFFF;
// Marks a job that isn't an alternative to try but the end of everything tried below a split of a look-ahead.
constexpr std::uint32_t kLeave = 0x80000000;

using Op = RegexInstruction::Op;

class Matcher {
 public:
  Matcher(const RegexProgram& program, std::u32string_view text, RegexScratch& scratch)
      : program_(program), text_(text), size_(static_cast<std::uint32_t>(text.size())), scratch_(scratch) {
    words_ = program.num_visits / 64 + 1;
    scratch_.visited.assign(words_ * (text.size() + 1), 0);
    scratch_.run_ends.resize(std::max<std::size_t>(scratch_.run_ends.size(), program.num_runs));
    for (std::uint32_t i = 0; i < program.num_runs; ++i) scratch_.run_ends[i].assign(text.size() + 1, kNone);
    scratch_.jobs.clear();
  }

  /// The end of the match that begins at `begin`, or kNone.
  std::uint32_t match_at(std::uint32_t begin) {
    const std::uint32_t end = run(0, begin);
    if (end != kNone) std::fill_n(&scratch_.visited[words_ * end], words_, 0);
    return end;
  }

 private:
  bool test(std::uint32_t at, std::uint32_t bit) const {
    return ((scratch_.visited[words_ * at + bit / 64] >> (bit % 64)) & 1U) != 0;
  }
  void set(std::uint32_t at, std::uint32_t bit) {
    scratch_.visited[words_ * at + bit / 64] |= std::uint64_t{1} << (bit % 64);
  }
  bool in_set(std::uint32_t at, std::uint32_t set_index) const {
    return at < size_ && program_.sets[set_index].contains(text_[at]);
  }

  /// Runs the program from `pc` until its kMatch; the position there, or kNone. Nests as deep as look-aheads do.
  std::uint32_t run(std::uint32_t pc, std::uint32_t at) {
    const std::size_t base = scratch_.jobs.size();
    std::uint32_t result = kNone;
    scratch_.jobs.push_back({pc, at});
    while (result == kNone && scratch_.jobs.size() > base) {
      const RegexScratch::Job job = scratch_.jobs.back();
      scratch_.jobs.pop_back();
      if ((job.pc & kLeave) == 0) result = follow(job.pc, job.at);
    }
    if (result != kNone) remember_success(base);
    scratch_.jobs.resize(std::min(base, scratch_.jobs.size()));
    return result;
  }

  /// What is still on the stack above `base` as left-to-leave lies on the path of the success.
  void remember_success(std::size_t base) {
    for (std::size_t i = base; i < scratch_.jobs.size(); ++i) {
      const RegexScratch::Job job = scratch_.jobs[i];
      if ((job.pc & kLeave) != 0) set(job.at, program_.code[job.pc & ~kLeave].visit + 1);
    }
  }

  /// Follows one path, stacking alternatives, until it fails (kNone) or matches.
  std::uint32_t follow(std::uint32_t pc, std::uint32_t at) {
    while (true) {
      const RegexInstruction& step = program_.code[pc];
      switch (step.op) {
        case Op::kMatch: return at;
        case Op::kJump: pc = step.a; continue;
        case Op::kSplit:
          if (step.in_lookahead && test(at, step.visit + 1)) return at;  // where a look-ahead ends doesn't matter
          if (test(at, step.visit)) return kNone;
          set(at, step.visit);
          if (step.in_lookahead) scratch_.jobs.push_back({pc | kLeave, at});
          scratch_.jobs.push_back({step.b, at});
          pc = step.a;
          continue;
        case Op::kLook:
          if (look(pc, at) == step.negative) return kNone;
          pc = step.a;
          continue;
        case Op::kSet:
          if (!in_set(at, step.a)) return kNone;
          ++at;
          break;
        case Op::kOptionalSet:
          if (in_set(at, step.a)) ++at;
          break;
        case Op::kRun: at = run_end(step, at); break;
        default:
          if (!holds(step, at)) return kNone;
          break;
      }
      ++pc;
    }
  }

  bool holds(const RegexInstruction& step, std::uint32_t at) const {
    switch (step.op) {
      case Op::kLookSet: return in_set(at, step.a) != step.negative;
      case Op::kTextBegin: return at == 0;
      case Op::kTextEnd: return at == size_;
      case Op::kLineBegin: return at == 0 || (text_[at - 1] == '\n' && at < size_);
      case Op::kLineEnd: return at == size_ || text_[at] == '\n';
      default: {
        const bool before = at > 0 && program_.word.contains(text_[at - 1]);
        const bool after = at < size_ && program_.word.contains(text_[at]);
        return (before != after) != step.negative;
      }
    }
  }

  bool look(std::uint32_t pc, std::uint32_t at) {
    const std::uint32_t known = program_.code[pc].visit;
    if (!test(at, known)) {
      const bool found = run(pc + 1, at) != kNone;
      set(at, known);
      if (found) set(at, known + 1);
    }
    return test(at, known + 1);
  }

  /// The end of the run of a set's characters that begins at `at`; every position of a run is scanned once.
  std::uint32_t run_end(const RegexInstruction& step, std::uint32_t at) {
    std::vector<std::uint32_t>& ends = scratch_.run_ends[step.visit];
    std::uint32_t end = at;
    while (ends[end] == kNone && in_set(end, step.a)) ++end;
    if (ends[end] != kNone) end = ends[end];
    for (std::uint32_t i = at; i <= end && ends[i] == kNone; ++i) ends[i] = end;
    return end;
  }

  const RegexProgram& program_;
  std::u32string_view text_;
  std::uint32_t size_;
  std::size_t words_ = 0;
  RegexScratch& scratch_;
};

}  // namespace

Result<Regex> Regex::compile(std::string_view pattern) {
  VN_ASSIGN(RegexTree tree, parse_regex(pattern));
  VN_ASSIGN(RegexProgram program, compile_regex(std::move(tree)));
  return Regex(std::make_shared<const RegexProgram>(std::move(program)));
}

Result<std::vector<Regex::Match>> Regex::find_all(std::u32string_view text, RegexScratch& scratch) const {
  const std::uint64_t row_bytes = (program_->num_visits / 64 + 1) * 8 + program_->num_runs * 4;
  if (text.size() >= kMaxMemoBytes / row_bytes) {
    return fail(ErrorCode::kUnsupported, "a text of {} characters is too long for this regular expression (at most {})",
                text.size(), kMaxMemoBytes / row_bytes - 1);
  }
  Matcher matcher(*program_, text, scratch);
  std::vector<Match> matches;
  std::optional<std::uint32_t> last_end;
  const auto size = static_cast<std::uint32_t>(text.size());
  for (std::uint32_t at = 0; at <= size;) {
    const std::uint32_t end = matcher.match_at(at);
    if (end == kNone || (end == at && last_end == at)) {
      ++at;
      continue;
    }
    matches.push_back({at, end});
    last_end = end;
    at = end;
  }
  return matches;
}

}  // namespace vernier::text_internal
