#include "checkpoint/tensor_record.h"

#include <algorithm>
#include <utility>

namespace vernier {

std::string shape_text(std::span<const std::uint64_t> shape) {
  std::string text = "[";
  for (const std::uint64_t dim : shape) {
    if (text.size() > 1) text += ", ";
    text += fmt::format("{}", dim);
  }
  return text + "]";
}

Result<TensorIndex> TensorIndex::build(std::span<const TensorRecord> tensors) {
  // Names beside their positions: the sort then touches no records.
  std::vector<std::pair<std::string_view, std::uint32_t>> names;
  names.reserve(tensors.size());
  for (const TensorRecord& record : tensors) names.emplace_back(record.name, static_cast<std::uint32_t>(names.size()));
  std::sort(names.begin(), names.end());
  TensorIndex index;
  index.order_.reserve(names.size());
  for (const auto& [name, position] : names) index.order_.push_back(position);
  for (std::size_t i = 1; i < index.order_.size(); ++i) {
    const std::uint32_t a = index.order_[i - 1];
    const std::uint32_t b = index.order_[i];
    if (tensors[a].name != tensors[b].name) continue;
    if (tensors[a].file != tensors[b].file) {
      return fail(ErrorCode::kCorrupt, "duplicate tensor '{}', in {} and in {}", escape(tensors[a].name),
                  tensors[a].file->name(), tensors[b].file->name());
    }
    return fail(ErrorCode::kCorrupt, "duplicate tensor '{}' (#{}, #{})", escape(tensors[a].name), a, b);
  }
  return index;
}

std::optional<std::size_t> TensorIndex::find(std::span<const TensorRecord> tensors, std::string_view name) const {
  const auto at = std::lower_bound(order_.begin(), order_.end(), name,
                                   [&](std::uint32_t i, std::string_view wanted) { return tensors[i].name < wanted; });
  if (at == order_.end() || tensors[*at].name != name) return std::nullopt;
  return *at;
}

}  // namespace vernier
