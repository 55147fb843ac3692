// A small regular-expression engine over code points for the pre-tokenizer patterns of published models. Semantics are
// those of Oniguruma (leftmost, first alternative first), time is linear in the text for every pattern it accepts.
// Constructs that it lacks (back references, look-behind, atomic groups, scripts, ...) are refused by name.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace vernier::text_internal {

struct RegexProgram;

/// Memory that searches reuse, so that many short pieces don't each allocate. One a thread.
struct RegexScratch {
  struct Job {
    std::uint32_t pc;
    std::uint32_t at;
  };
  std::vector<Job> jobs;
  std::vector<std::uint64_t> visited;                // [position][words of program], see regex_matcher.cc
  std::vector<std::vector<std::uint32_t>> run_ends;  // of each possessive repetition, by position
};

/// A compiled pattern: immutable, shared by copies, usable by any number of threads.
class Regex {
 public:
  struct Match {
    std::size_t begin;
    std::size_t end;
  };

  /// Limits on the pattern's size keep compilation cheap for any input.
  static Result<Regex> compile(std::string_view pattern);

  /// All matches from left to right, as a repeated search finds them: an empty match right behind another match is
  /// skipped. O(text * pattern). The error is a text too long for the memory that this pattern needs.
  [[nodiscard]] Result<std::vector<Match>> find_all(std::u32string_view text, RegexScratch& scratch) const;

 private:
  explicit Regex(std::shared_ptr<const RegexProgram> program) : program_(std::move(program)) {}

  std::shared_ptr<const RegexProgram> program_;
};

}  // namespace vernier::text_internal
