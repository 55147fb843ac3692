// The tensors of a checkpoint, grouped by the weight they belong to: "x.weight", "x.weight_scale" and "x.input_scale"
// are parts of the stem "x". Built in one pass over the headers; which parts make sense together is said by
// quant_dialect.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "checkpoint/quant_dialect.h"
#include "checkpoint/tensor_record.h"

namespace vernier {

/// Hashing of names from files, keyed by a number of this process so that no file can be made of colliding names.
struct SeededHash {
  std::size_t operator()(std::string_view text) const;
};

/// See the top of the file. Views into the records, which must outlive it unchanged.
class TensorGroups {
 public:
  explicit TensorGroups(std::span<const TensorRecord> records);

  /// The part of a record.
  [[nodiscard]] TensorPart part(std::uint32_t record) const { return entries_[record].part; }
  /// The name of the weight that a record belongs to.
  [[nodiscard]] std::string_view stem(std::uint32_t record) const { return entries_[record].stem; }
  /// All parts of `stem`: empty when there are none. Foreign parts aren't listed.
  [[nodiscard]] TensorParts parts(std::string_view stem) const;
  /// The record with exactly this name, or kNoTensor.
  [[nodiscard]] std::uint32_t find(std::string_view name) const;
  /// True when some record is such a part.
  [[nodiscard]] bool any(TensorPart part) const { return counts_[static_cast<std::size_t>(part)] > 0; }

 private:
  struct Entry {
    std::string_view stem;
    TensorPart part = TensorPart::kOther;
    std::uint32_t next = kNoTensor;  // of the same stem
  };

  std::span<const TensorRecord> records_;
  std::vector<Entry> entries_;  // one a record
  std::array<std::uint32_t, kNumTensorParts> counts_{};
  std::unordered_map<std::string_view, std::uint32_t, SeededHash> first_;  // stem -> its last record
};

}  // namespace vernier
