// Holds what the tensors are against what the quantisation config declares. Internal to checkpoint/.
#pragma once

#include <string_view>

#include "checkpoint/ledger.h"
#include "checkpoint/resolver.h"
#include "checkpoint/tensor_groups.h"

namespace vernier {

/// Only trunk projections count: configs speak loosely of everything else. Not thread-safe.
class ConfigCheck {
 public:
  ConfigCheck(const ResolveInput& input, Ledger& ledger) : input_(input), ledger_(ledger) {}

  /// Notes a problem when a weight contradicts the config. `module` is its path; `first` that of the first expert of
  /// the same bank (or the same).
  void check(const TensorSpec& spec, std::string_view module, std::string_view first, const StoredMatrix& stored);
  /// Warns about quantised weights under a config that says nothing of them.
  void warn_if_undeclared(const TensorGroups& groups) const;

 private:
  [[nodiscard]] bool agrees(const Declared& declared, Scheme found) const;
  void report(std::string_view module, const Declared& declared, Scheme found, const StoredMatrix& stored);

  const ResolveInput& input_;
  Ledger& ledger_;
  std::string guessed_for_;  // the module that guess_ is about
  std::optional<Declared> guess_;
  std::size_t second_looks_ = 0;
};

}  // namespace vernier
