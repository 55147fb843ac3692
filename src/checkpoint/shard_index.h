// Which files belong to a checkpoint: the index of sharded safetensors, and the file names of split GGUF sets.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/mapped_file.h"
#include "base/result.h"
#include "checkpoint/container_options.h"
#include "checkpoint/tensor_record.h"

namespace vernier {

/// The `weight_map` of a *.safetensors.index.json. Its metadata (total_size) is wrong in many published files and never
/// read.
struct ShardIndex {
  struct Entry {
    std::string tensor;
    std::uint32_t shard = 0;  ///< position in `shards`
  };
  std::vector<std::string> shards;  ///< distinct, plain file names, ascending
  std::vector<Entry> entries;       ///< ascending by tensor name, names unique
};

/// Reads an index. Shard names are checked to be plain file names before anyone can open them.
[[nodiscard]] Result<ShardIndex> parse_shard_index(std::string_view text, const ContainerLimits& limits);

/// kCorrupt unless `tensors` (of the shards, `file_index` counting as `index.shards` does) are exactly those of the
/// index, each in the shard that it names. Lists the first culprits.
[[nodiscard]] Status check_shard_index(const ShardIndex& index, std::span<const TensorRecord> tensors,
                                       const TensorIndex& by_name);

/// The name of one file of a split GGUF set: `<prefix>-00002-of-00005.gguf`.
struct SplitName {
  std::string prefix;
  std::uint64_t number = 0;  ///< from 1
  std::uint64_t count = 0;

  /// The file name of shard `number`.
  [[nodiscard]] std::string file_name(std::uint64_t shard_number) const;
};

/// The parts of `file_name`, or nothing when it doesn't have that form.
[[nodiscard]] std::optional<SplitName> parse_split_name(std::string_view file_name);

/// "'a', 'b' and 7 more": names in a message.
[[nodiscard]] std::string name_list(std::span<const std::string> names, std::size_t at_most);

}  // namespace vernier
