#include "checkpoint/missing.h"

#include <algorithm>

namespace vernier {
namespace {

constexpr std::size_t kMaxNamed = 10;

std::size_t common_length(std::string_view a, std::string_view b) {
  return static_cast<std::size_t>(
      std::mismatch(a.begin(), a.begin() + static_cast<std::ptrdiff_t>(std::min(a.size(), b.size())), b.begin()).first -
      a.begin());
}

}  // namespace

void MissingList::add(const TensorSpec& spec, std::string_view expert_name) {
  if (spec.required || !expert_name.empty()) entries_.push_back({&spec, std::string(expert_name)});
}

/// How much of a name some stored name begins with: tells which of several spellings the checkpoint uses.
std::size_t MissingList::likeness(std::string_view name) const {
  const auto next = std::lower_bound(
      by_name_.begin(), by_name_.end(), name,
      [&](std::uint32_t record, std::string_view text) { return std::string_view(records_[record].name) < text; });
  std::size_t result = 0;
  if (next != by_name_.end()) result = common_length(name, records_[*next].name);
  if (next != by_name_.begin()) result = std::max(result, common_length(name, records_[*(next - 1)].name));
  return result;
}

std::string MissingList::describe(const Entry& entry) const {
  const TensorSpec& spec = *entry.spec;
  const Spelling* best = nullptr;
  std::string name = entry.expert_name;
  std::size_t best_rest = 0;
  for (const Spelling& spelling : spec.spellings) {
    std::string candidate = spelling.name;
    if (const std::size_t at = candidate.find("{e}"); at != std::string::npos) candidate.replace(at, 3, "0");
    const std::size_t rest = candidate.size() - likeness(candidate);
    const bool is_used = !entry.expert_name.empty() && spelling.name.find("{e}") != std::string::npos;
    if (best != nullptr && !is_used && rest >= best_rest) continue;
    best = &spelling;
    best_rest = rest;
    if (entry.expert_name.empty()) name = std::move(candidate);
    if (is_used) break;
  }
  std::string_view suffix;
  const TensorParts parts = groups_.parts(name);
  if (best != nullptr && best->suffixed) suffix = parts.has(TensorPart::kDivisor) ? ".weight_packed" : ".weight";
  if (best != nullptr && !best->suffixed && parts.has(TensorPart::kBlockScales)) suffix = "_blocks";
  std::vector<std::uint64_t> shape = spec.shape;
  if (best != nullptr && best->name.find("{e}") != std::string::npos && shape.size() == 3) shape.erase(shape.begin());
  if (best != nullptr && best->stored_as >= StoredAs::kFirstHalf && !shape.empty()) {
    shape[shape.size() < 2 || spec.kind == TensorKind::kVector ? shape.size() - 1 : shape.size() - 2] *= 2;
  }
  return fmt::format("'{}{}' {}", escape(name), suffix, shape_text(shape));
}

void MissingList::report(bool has_mtp, Ledger& ledger) const {
  std::string named;
  std::size_t count = 0;
  std::string last;
  for (const Entry& entry : entries_) {
    if (entry.spec->mtp && !has_mtp) continue;
    if (count >= kMaxNamed) {
      ++count;
      continue;
    }
    std::string text = describe(entry);
    if (text == last) continue;  // the halves of a fused tensor
    ++count;
    named += (named.empty() ? "" : ", ") + text;
    last = std::move(text);
  }
  if (count == 0) return;
  const std::string more = count > kMaxNamed ? fmt::format(", and {} more", count - kMaxNamed) : std::string();
  ledger.fail_all(Error{ErrorCode::kCorrupt,
                        fmt::format("{} tensor{} missing: {}{}", count, count == 1 ? " is" : "s are", named, more),
                        {}});
}

}  // namespace vernier
