// What a model asked for and no file has, collected into one error. Internal to checkpoint/.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/ledger.h"
#include "checkpoint/tensor_groups.h"
#include "checkpoint/tensor_spec.h"

namespace vernier {

/// Not thread-safe; everything given to it must outlive it.
class MissingList {
 public:
  MissingList(std::span<const TensorRecord> records, std::span<const std::uint32_t> by_name, const TensorGroups& groups)
      : records_(records), by_name_(by_name), groups_(groups) {}

  /// Notes that a spec wasn't found, or (with the name of) one expert of it.
  void add(const TensorSpec& spec, std::string_view expert_name);
  /// Writes the error, if any: MTP tensors count only if the checkpoint has some of them.
  void report(bool has_mtp, Ledger& ledger) const;

 private:
  struct Entry {
    const TensorSpec* spec;
    std::string expert_name;
  };

  [[nodiscard]] std::string describe(const Entry& entry) const;
  [[nodiscard]] std::size_t likeness(std::string_view name) const;

  std::span<const TensorRecord> records_;
  std::span<const std::uint32_t> by_name_;
  const TensorGroups& groups_;
  std::vector<Entry> entries_;
};

}  // namespace vernier
