// The books of a resolution: what became of each tensor, written exactly once. Internal to checkpoint/.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/quant_dialect.h"
#include "checkpoint/tensor_record.h"
#include "checkpoint/weight_set.h"

namespace vernier {

/// Not thread-safe. The records must outlive it.
class Ledger {
 public:
  explicit Ledger(std::span<const TensorRecord> records);

  [[nodiscard]] bool is_open(std::uint32_t record) const { return states_[record].fate == Fate::kOpen; }

  /// Books a weight with its scales as used, counting it once however many slices are taken. False, with a problem
  /// noted, when one of its tensors or the same slice of it has been used before.
  bool use(const StoredMatrix& matrix, StoredAs slice);
  bool use_vector(std::uint32_t record, StoredAs slice);
  /// Books the scale of a KV cache, which counts neither as a weight nor as a parameter.
  bool use_cache_scale(std::uint32_t record);
  void ignore(std::uint32_t record, const std::string& reason);
  /// Notes a problem with a tensor, which then counts as refused whatever it was before.
  void refuse(std::uint32_t record, Error error);
  /// Books tensors that fell with another's problem.
  void refuse_quietly(std::uint32_t record);
  /// A problem of no single tensor: stands before all others.
  void fail_all(Error error);
  void warn(std::string warning);

  /// Closes the books. All records must have found their fate.
  [[nodiscard]] Accounting finish(std::string dialect);

 private:
  enum class Fate : std::uint8_t { kOpen, kUsed, kIgnored, kRefused };
  struct State {
    Fate fate = Fate::kOpen;
    std::uint8_t slices = 0;
    std::uint16_t reason = 0;
  };
  struct Problem {
    std::uint32_t record;
    Error error;
  };

  bool take_slice(std::uint32_t record, StoredAs slice);
  void check_slices(std::uint32_t record);
  void count(const StoredMatrix& matrix);

  std::span<const TensorRecord> records_;
  std::vector<State> states_;
  std::vector<std::string> reasons_;
  std::vector<Problem> problems_;
  std::vector<Error> general_;
  std::vector<std::string> warnings_;
  std::vector<FormatUse> formats_;  // by FormatId
  std::uint64_t parameters_ = 0;
  std::uint64_t weight_bytes_ = 0;
  std::uint64_t cache_scales_ = 0;
};

}  // namespace vernier
