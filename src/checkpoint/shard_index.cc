#include "checkpoint/shard_index.h"

#include <algorithm>
#include <charconv>

#include "base/json_reader.h"
#include "checkpoint/model_folder.h"
#include "checkpoint/name_check.h"

namespace vernier {
namespace {

constexpr std::size_t kCulprits = 10;

/// The weight map in the order of the text: tensor and shard.
using WeightMap = std::vector<std::pair<std::string, std::string>>;

Status read_weight_map(JsonReader& json, const ContainerLimits& limits, WeightMap& map) {
  VN_TRY(json.enter_object());
  std::string tensor;
  std::string shard;
  while (true) {
    VN_ASSIGN(const bool more, json.next_member(tensor));
    if (!more) return {};
    VN_TRY(json.read_string(shard));
    if (auto status = check_tensor_name(tensor, limits); !status) {
      return tl::unexpected(with_context(std::move(status).error(), "a tensor of weight_map"));
    }
    if (auto status = check_plain_file_name(shard); !status) {
      return tl::unexpected(with_context(std::move(status).error(), fmt::format("tensor '{}'", escape(tensor))));
    }
    map.emplace_back(tensor, shard);
  }
}

Result<WeightMap> read_index_json(std::string_view text, const ContainerLimits& limits) {
  JsonReader json(text);
  WeightMap map;
  bool seen = false;
  std::string key;
  VN_TRY(json.enter_object());
  while (true) {
    VN_ASSIGN(const bool more, json.next_member(key));
    if (!more) break;
    if (key != "weight_map") {
      VN_TRY(json.skip_value());
      continue;
    }
    if (seen) return fail(ErrorCode::kCorrupt, "duplicate key 'weight_map'");
    seen = true;
    VN_TRY(read_weight_map(json, limits, map));
  }
  VN_TRY(json.finish());
  if (!seen) return fail(ErrorCode::kCorrupt, "has no 'weight_map'");
  return map;
}

}  // namespace

std::string name_list(std::span<const std::string> names, std::size_t at_most) {
  std::string text;
  const std::size_t shown = std::min(names.size(), at_most);
  for (std::size_t i = 0; i < shown; ++i) text += fmt::format("{}'{}'", i > 0 ? ", " : "", escape(names[i]));
  if (names.size() > shown) text += fmt::format(" and {} more", names.size() - shown);
  return text;
}

Result<ShardIndex> parse_shard_index(std::string_view text, const ContainerLimits& limits) {
  VN_ASSIGN(WeightMap map, read_index_json(text, limits));
  ShardIndex index;
  for (const auto& [tensor, shard] : map) {
    // Neighbours are mostly in one shard, so this keeps the list short before it's sorted.
    if (index.shards.empty() || index.shards.back() != shard) index.shards.push_back(shard);
  }
  std::sort(index.shards.begin(), index.shards.end());
  index.shards.erase(std::unique(index.shards.begin(), index.shards.end()), index.shards.end());
  if (index.shards.empty()) return fail(ErrorCode::kCorrupt, "weight_map is empty");
  if (index.shards.size() > limits.shards) {
    return fail(ErrorCode::kCorrupt, "weight_map names {} shards, which exceeds the limit of {}", index.shards.size(),
                limits.shards);
  }
  index.entries.reserve(map.size());
  for (auto& [tensor, shard] : map) {
    const auto at = std::lower_bound(index.shards.begin(), index.shards.end(), shard);
    index.entries.push_back({std::move(tensor), static_cast<std::uint32_t>(at - index.shards.begin())});
  }
  std::sort(index.entries.begin(), index.entries.end(),
            [](const auto& a, const auto& b) { return a.tensor < b.tensor; });
  const auto twice = std::adjacent_find(index.entries.begin(), index.entries.end(),
                                        [](const auto& a, const auto& b) { return a.tensor == b.tensor; });
  if (twice == index.entries.end()) return index;
  return fail(ErrorCode::kCorrupt, "duplicate tensor '{}' in weight_map", escape(twice->tensor));
}

Status check_shard_index(const ShardIndex& index, std::span<const TensorRecord> tensors, const TensorIndex& by_name) {
  std::vector<std::string> missing;   // in the index alone
  std::vector<std::string> unlisted;  // in a shard alone
  const auto order = by_name.by_name();
  std::size_t i = 0;
  std::size_t k = 0;
  while (i < index.entries.size() || k < order.size()) {
    const ShardIndex::Entry* entry = i < index.entries.size() ? &index.entries[i] : nullptr;
    const TensorRecord* record = k < order.size() ? &tensors[order[k]] : nullptr;
    if (record == nullptr || (entry != nullptr && entry->tensor < record->name)) {
      missing.push_back(entry->tensor);
      ++i;
    } else if (entry == nullptr || record->name < entry->tensor) {
      unlisted.push_back(record->name);
      ++k;
    } else {
      if (entry->shard != record->file_index) {
        return fail(ErrorCode::kCorrupt, "tensor '{}' is in {}, but the index says {}", escape(record->name),
                    record->file->name(), escape(index.shards[entry->shard]));
      }
      ++i;
      ++k;
    }
  }
  if (!missing.empty()) {
    return fail(ErrorCode::kCorrupt, "{} tensors of the index are in no shard: {}", missing.size(),
                name_list(missing, kCulprits));
  }
  if (!unlisted.empty()) {
    return fail(ErrorCode::kCorrupt, "{} tensors of the shards are not in the index: {}", unlisted.size(),
                name_list(unlisted, kCulprits));
  }
  return {};
}

std::string SplitName::file_name(std::uint64_t shard_number) const {
  return fmt::format("{}-{:05}-of-{:05}.gguf", prefix, shard_number, count);
}

std::optional<SplitName> parse_split_name(std::string_view file_name) {
  constexpr std::string_view kForm = "-00001-of-00001.gguf";
  constexpr std::size_t kDigits = 5;
  if (file_name.size() <= kForm.size()) return std::nullopt;
  const std::string_view tail = file_name.substr(file_name.size() - kForm.size());
  const std::string_view number = tail.substr(1, kDigits);
  const std::string_view count = tail.substr(1 + kDigits + 4, kDigits);
  const auto digits = [](std::string_view text) {
    return std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
  };
  if (tail[0] != '-' || tail.substr(1 + kDigits, 4) != "-of-" || !tail.ends_with(".gguf") || !digits(number) ||
      !digits(count)) {
    return std::nullopt;
  }
  SplitName name;
  name.prefix = file_name.substr(0, file_name.size() - kForm.size());
  std::from_chars(number.data(), number.data() + kDigits, name.number);
  std::from_chars(count.data(), count.data() + kDigits, name.count);
  return name;
}

}  // namespace vernier
