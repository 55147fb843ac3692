#include "checkpoint/ledger.h"

#include <algorithm>

#include "format/format_list.h"

namespace vernier {
namespace {

constexpr std::size_t kMaxProblems = 100;

// Which rows of a tensor a slice takes. Halves and alternating rows overlap each other.
constexpr std::uint8_t slice_bit(StoredAs slice) {
  switch (slice) {
    case StoredAs::kFirstHalf: return 1;
    case StoredAs::kSecondHalf: return 2;
    case StoredAs::kEvenRows: return 4;
    case StoredAs::kOddRows: return 8;
    default: return 16;
  }
}
constexpr std::uint8_t kBothHalves = 3;
constexpr std::uint8_t kAllRows = 12;
constexpr std::uint8_t kWhole = 16;

bool overlaps(std::uint8_t taken, std::uint8_t bit) {
  if ((taken & bit) != 0) return true;
  const auto is_within = [&](std::uint8_t set) { return (taken & ~set) == 0 && (bit & ~set) == 0; };
  return taken != 0 && !is_within(kBothHalves) && !is_within(kAllRows);
}

}  // namespace

Ledger::Ledger(std::span<const TensorRecord> records)
    : records_(records), states_(records.size()), formats_(kFormats.size()) {}

bool Ledger::take_slice(std::uint32_t record, StoredAs slice) {
  State& state = states_[record];
  const std::uint8_t bit = slice_bit(slice);
  if (state.fate == Fate::kRefused) return false;  // and has been reported
  if (state.fate == Fate::kIgnored || overlaps(state.slices, bit)) {
    refuse(record, Error{ErrorCode::kCorrupt, label(records_[record]) + " would be used twice", {}});
    return false;
  }
  state.slices |= bit;
  state.fate = Fate::kUsed;
  return true;
}

bool Ledger::use(const StoredMatrix& matrix, StoredAs slice) {
  const bool is_first = states_[matrix.codes].fate == Fate::kOpen;
  if (!take_slice(matrix.codes, slice)) return false;
  if (is_first) count(matrix);
  for (const std::uint32_t part : {matrix.scales, matrix.outer}) {
    if (part != kNoTensor && !take_slice(part, slice)) return false;
  }
  return true;
}

void Ledger::count(const StoredMatrix& matrix) {
  FormatUse& use = formats_[static_cast<std::size_t>(matrix.format)];
  ++use.tensors;
  std::uint64_t bytes = records_[matrix.codes].extent.size;
  if (matrix.scales != kNoTensor) bytes += records_[matrix.scales].extent.size;
  weight_bytes_ += bytes;
  // GGUF's sidecars are tensors of their own there, and not counted to the weight they stand beside.
  if (matrix.outer != kNoTensor && !records_[matrix.outer].ggml_type) bytes += records_[matrix.outer].extent.size;
  use.bytes += bytes;
  parameters_ += std::max<std::uint64_t>(matrix.shape.experts, 1) * matrix.shape.rows * matrix.shape.cols;
}

bool Ledger::use_vector(std::uint32_t record, StoredAs slice) {
  const bool is_first = states_[record].fate == Fate::kOpen;
  if (!take_slice(record, slice)) return false;
  if (!is_first) return true;
  const TensorRecord& vector = records_[record];
  FormatUse& use = formats_[static_cast<std::size_t>(*find_plain_format(*vector.dtype))];
  ++use.tensors;
  use.bytes += vector.extent.size;
  parameters_ += vector.num_elements();
  weight_bytes_ += vector.num_elements() * sizeof(float);
  return true;
}

bool Ledger::use_cache_scale(std::uint32_t record) {
  if (!take_slice(record, StoredAs::kWhole)) return false;
  ++cache_scales_;
  return true;
}

void Ledger::ignore(std::uint32_t record, const std::string& reason) {
  const auto known = std::find(reasons_.begin(), reasons_.end(), reason);
  const auto index = static_cast<std::uint16_t>(known - reasons_.begin());
  if (known == reasons_.end()) reasons_.push_back(reason);
  states_[record].fate = Fate::kIgnored;
  states_[record].reason = index;
}

void Ledger::refuse(std::uint32_t record, Error error) {
  states_[record].fate = Fate::kRefused;
  problems_.push_back({record, std::move(error)});
}

void Ledger::refuse_quietly(std::uint32_t record) {
  if (record != kNoTensor) states_[record].fate = Fate::kRefused;
}

void Ledger::fail_all(Error error) { general_.push_back(std::move(error)); }

void Ledger::warn(std::string warning) { warnings_.push_back(std::move(warning)); }

void Ledger::check_slices(std::uint32_t record) {
  const State& state = states_[record];
  if (state.fate != Fate::kUsed) return;
  if (state.slices == kBothHalves || state.slices == kAllRows || state.slices == kWhole) return;
  refuse(record, Error{ErrorCode::kCorrupt, label(records_[record]) + " is used in part only", {}});
}

Accounting Ledger::finish(std::string dialect) {
  Accounting result;
  result.dialect = std::move(dialect);
  result.total = records_.size();
  for (std::uint32_t i = 0; i < states_.size(); ++i) {
    check_slices(i);
    switch (states_[i].fate) {
      case Fate::kUsed: ++result.used; break;
      case Fate::kIgnored: ++result.ignored[reasons_[states_[i].reason]]; break;
      default: ++result.refused;
    }
  }
  for (std::size_t i = 0; i < formats_.size(); ++i) {
    if (formats_[i].tensors > 0) result.formats.emplace(kFormats[i].name, formats_[i]);
  }
  result.parameters = parameters_;
  result.weight_bytes = weight_bytes_;
  result.cache_scales = cache_scales_;
  result.warnings = std::move(warnings_);
  std::stable_sort(problems_.begin(), problems_.end(),
                   [](const Problem& a, const Problem& b) { return a.record < b.record; });
  result.problems = std::move(general_);
  for (Problem& problem : problems_) {
    if (result.problems.size() >= kMaxProblems) break;
    result.problems.push_back(std::move(problem.error));
  }
  return result;
}

}  // namespace vernier
