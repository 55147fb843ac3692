// Lists of modules as quantisation configs write them: exact names, shell-style wildcards and "re:" expressions.
// The only place that uses PCRE2.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "base/result.h"

namespace vernier {

/// A module's path without what publishers put in front or leave out: leading "model." and "language_model.".
[[nodiscard]] std::string_view bare_module(std::string_view name);

/// True when `text` matches `pattern`, in which '*' stands for any characters and '?' for one. Linear in practice:
/// |pattern| * |text| at worst.
[[nodiscard]] bool matches_wildcards(std::string_view pattern, std::string_view text);

/// Compiled once, asked for every module. Immutable after filling; not copyable. Safe to read from any thread.
class ModuleList {
 public:
  enum class Below : bool {
    kNo,   ///< an entry names one module
    kYes,  ///< an entry names a module and everything below it
  };

  ModuleList();
  ~ModuleList();
  ModuleList(ModuleList&&) noexcept;
  ModuleList& operator=(ModuleList&&) noexcept;

  /// Adds an entry. kCorrupt for an expression that doesn't compile, kUnsupported when there are too many patterns.
  Status add(std::string_view entry, Below below);
  [[nodiscard]] bool empty() const { return num_entries_ == 0; }
  /// Whether some entry names `module` for certain.
  [[nodiscard]] bool matches(std::string_view module) const;
  /// Whether some entry can be read as meaning `module`: it occurs within it, names a part of it, or names the fused
  /// module that it becomes part of elsewhere. Slow.
  [[nodiscard]] bool suggests(std::string_view module) const;

 private:
  struct Expression;

  std::size_t num_entries_ = 0;
  std::unordered_set<std::string> names_;       // bare
  std::unordered_set<std::string> trees_;       // bare: the module and everything below
  std::unordered_set<std::string> beginnings_;  // bare: "x*"
  std::vector<std::size_t> beginning_lengths_;  // those that occur
  std::vector<std::string> wildcards_;
  std::vector<std::string> wildcard_trees_;
  std::vector<Expression> expressions_;
  std::vector<std::string> all_;  // bare, without a final '*'
};

}  // namespace vernier
