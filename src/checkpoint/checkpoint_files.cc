#include "checkpoint/checkpoint_files.h"

#include <algorithm>
#include <utility>

#include "checkpoint/gguf.h"
#include "checkpoint/look_alike.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/shard_index.h"

namespace vernier {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kIndexSuffix = ".safetensors.index.json";
constexpr std::string_view kUsualIndex = "model.safetensors.index.json";
constexpr std::size_t kNamesInMessage = 64;

/// What a GGUF file says about the set it belongs to.
struct SplitKeys {
  std::optional<std::uint64_t> number;  // from 0
  std::optional<std::uint64_t> count;
  std::optional<std::uint64_t> num_tensors;  // of the whole set
};

Result<SplitKeys> read_split_keys(const GgufMetadata& metadata) {
  SplitKeys keys;
  VN_ASSIGN(keys.number, metadata.find_u64("split.no"));
  VN_ASSIGN(keys.count, metadata.find_u64("split.count"));
  VN_ASSIGN(keys.num_tensors, metadata.find_u64("split.tensors.count"));
  return keys;
}

}  // namespace

std::string_view container_name(ContainerKind kind) {
  switch (kind) {
    case ContainerKind::kGguf: return "gguf";
    case ContainerKind::kSafetensors: return "safetensors";
    default: return "none";
  }
}

/// Finds the files that belong together and joins what their readers say.
class CheckpointOpener {
 public:
  explicit CheckpointOpener(const OpenOptions& options) : options_(options) {}

  Result<CheckpointFiles> open(const fs::path& path) {
    std::error_code error;
    const fs::file_status status = fs::status(path, error);
    if (!fs::exists(status)) {
      return fail(ErrorCode::kNotFound, "{}: no such file or folder", escape(path.filename().string()));
    }
    if (fs::is_directory(status)) {
      VN_TRY(open_folder(path));
    } else if (!fs::is_regular_file(status)) {
      // Said before opening: opening some devices does something.
      return fail(ErrorCode::kCorrupt, "{}: not a regular file", escape(path.filename().string()));
    } else {
      VN_TRY(open_file(path));
    }
    return finish();
  }

  Result<CheckpointFiles> open_gguf(const std::shared_ptr<const MappedFile>& file) {
    result_.name_ = file->name();
    VN_ASSIGN(GgufFile gguf, GgufFile::open(file, options_));
    VN_ASSIGN(const SplitKeys keys, read_split_keys(gguf.metadata()));
    if (keys.count.value_or(1) > 1) {
      return fail(ErrorCode::kUnsupported, "{}: is one of {} shards, which can't be found from here", result_.name_,
                  *keys.count);
    }
    add_gguf(std::move(gguf));
    return finish();
  }

 private:
  Result<CheckpointFiles> finish() {
    auto index = TensorIndex::build(result_.tensors_);
    if (!index) return tl::unexpected(with_context(std::move(index).error(), result_.name_));
    result_.index_ = *std::move(index);
    if (shard_index_) {
      if (auto status = check_shard_index(*shard_index_, result_.tensors_, result_.index_); !status) {
        return tl::unexpected(with_context(std::move(status).error(), result_.name_));
      }
    }
    return std::move(result_);
  }

  Status open_file(const fs::path& path) {
    result_.name_ = escape(path.filename().string());
    if (path.filename().string().ends_with(kIndexSuffix)) {
      VN_TRY(set_folder(path.parent_path()));
      return open_index(path.filename().string());
    }
    VN_ASSIGN(auto file, MappedFile::open(path));
    VN_ASSIGN(const auto bytes, file->bytes({0, file->size()}));
    const bool is_gguf = has_gguf_magic(bytes);
    if (is_gguf || path.extension() == ".gguf") {
      VN_TRY(open_gguf_set(path, file));
      result_.folder_.reset();  // what lies beside a GGUF file isn't part of it
      return {};
    }
    VN_TRY(set_folder(path.parent_path()));
    // A shard stands for the checkpoint that its index describes.
    VN_ASSIGN(const auto index_name, find_index());
    if (index_name) {
      VN_ASSIGN(const ShardIndex index, read_index(*index_name));
      if (std::binary_search(index.shards.begin(), index.shards.end(), path.filename().string())) {
        return open_index(*index_name);
      }
    }
    VN_ASSIGN(SafetensorsFile single, SafetensorsFile::open(file, options_));
    add_safetensors(std::move(single));
    return {};
  }

  Status open_folder(const fs::path& path) {
    VN_TRY(set_folder(path));
    result_.name_ = result_.folder_->name();
    VN_ASSIGN(const auto index_name, find_index());
    if (index_name) return open_index(*index_name);
    VN_ASSIGN(const auto names, result_.folder_->list(".safetensors"));
    if (!names.empty()) return open_shards(names);
    VN_ASSIGN(const auto gguf_names, result_.folder_->list(".gguf"));
    if (!gguf_names.empty()) return open_only_gguf(gguf_names);
    if (!options_.need_tensors) return {};
    return no_weights();
  }

  Status no_weights() {
    for (const std::string_view suffix : {".bin", ".pt", ".pth"}) {
      VN_ASSIGN(const auto names, result_.folder_->list(suffix));
      if (names.empty()) continue;
      return fail_with_hint(ErrorCode::kUnsupported, "pickle is never loaded; convert to safetensors",
                            "{}: holds no *.safetensors or *.gguf, only {}", result_.name_, name_list(names, 4));
    }
    return fail(ErrorCode::kNotFound, "{}: the folder holds no *.safetensors or *.gguf", result_.name_);
  }

  Status set_folder(const fs::path& path) {
    VN_ASSIGN(result_.folder_, ModelFolder::open(path, options_));
    return {};
  }

  // --- safetensors -----------------------------------------------------------------------------------------------

  /// The name of the folder's index file, if it has one.
  Result<std::optional<std::string>> find_index() {
    if (result_.folder_->contains(kUsualIndex)) return std::string(kUsualIndex);
    VN_ASSIGN(const auto names, result_.folder_->list(kIndexSuffix));
    if (names.empty()) return std::nullopt;
    if (names.size() == 1) return names[0];
    return fail(ErrorCode::kInvalidArgument, "{}: the folder holds several indexes: {}; name one", result_.name_,
                name_list(names, kNamesInMessage));
  }

  Result<ShardIndex> read_index(const std::string& name) {
    VN_ASSIGN(const auto file, result_.folder_->map(name));
    if (file->size() > options_.limits.index_bytes) {
      return fail(ErrorCode::kCorrupt, "{}: {} bytes exceed the limit of {}", file->name(), file->size(),
                  options_.limits.index_bytes);
    }
    auto index = parse_shard_index(text_of(file), options_.limits);
    if (!index) return tl::unexpected(with_context(std::move(index).error(), file->name()));
    return index;
  }

  Status open_index(const std::string& name) {
    VN_ASSIGN(shard_index_, read_index(name));
    VN_TRY(open_shards(shard_index_->shards));
    VN_ASSIGN(const auto present, result_.folder_->list(".safetensors"));
    std::vector<std::string> unread;
    std::set_difference(present.begin(), present.end(), shard_index_->shards.begin(), shard_index_->shards.end(),
                        std::back_inserter(unread));
    if (!unread.empty()) {
      result_.warnings_.push_back(fmt::format("not in the index, left unread: {}", name_list(unread, kNamesInMessage)));
    }
    return {};
  }

  Status open_shards(const std::vector<std::string>& names) {
    VN_TRY(check_present(names));
    for (const std::string& name : names) {
      VN_ASSIGN(auto file, result_.folder_->map(name));
      VN_ASSIGN(SafetensorsFile shard, SafetensorsFile::open(file, options_));
      add_safetensors(std::move(shard));
    }
    return {};
  }

  /// kCorrupt naming all of `names` that the folder lacks, or when there are too many files.
  Status check_present(const std::vector<std::string>& names) {
    if (names.size() > options_.limits.shards) {
      return fail(ErrorCode::kCorrupt, "{}: {} shards exceed the limit of {}", result_.name_, names.size(),
                  options_.limits.shards);
    }
    std::vector<std::string> missing;
    for (const std::string& name : names) {
      if (!result_.folder_->contains(name)) missing.push_back(name);
    }
    if (missing.empty()) return {};
    return fail_with_hint(ErrorCode::kCorrupt, "fetch the missing files into the same folder",
                          "{}: {} of {} shards are missing: {}", result_.name_, missing.size(), names.size(),
                          name_list(missing, kNamesInMessage));
  }

  void add_safetensors(SafetensorsFile shard) {
    result_.container_ = ContainerKind::kSafetensors;
    add_records(shard.file(), shard.take_tensors(), shard.warnings());
  }

  // --- GGUF ------------------------------------------------------------------------------------------------------

  Status open_only_gguf(const std::vector<std::string>& names) {
    const auto split = parse_split_name(names[0]);
    const bool one_set = std::all_of(names.begin(), names.end(), [&](const std::string& name) {
      const auto other = parse_split_name(name);
      return split && other && other->prefix == split->prefix && other->count == split->count;
    });
    if (names.size() > 1 && !one_set) {
      return fail(ErrorCode::kInvalidArgument, "{}: the folder holds several GGUF files: {}; name one", result_.name_,
                  name_list(names, kNamesInMessage));
    }
    VN_ASSIGN(auto file, result_.folder_->map(names[0]));
    return open_gguf_set(names[0], file);
  }

  /// `file` is the one at `path`; the rest of its set, if it's one of several, is looked for beside it.
  Status open_gguf_set(const fs::path& path, const std::shared_ptr<const MappedFile>& file) {
    VN_ASSIGN(GgufFile given, GgufFile::open(file, options_));
    VN_ASSIGN(const SplitKeys keys, read_split_keys(given.metadata()));
    const auto split = parse_split_name(path.filename().string());
    const std::uint64_t count = keys.count.value_or(1);
    if (count <= 1 && (!split || split->count <= 1)) {
      add_gguf(std::move(given));
      return {};
    }
    const std::string name = given.file()->name();
    if (!split || split->count != count) {
      return fail_with_hint(ErrorCode::kCorrupt, "give the files of the set the names they were made with",
                            "{}: split.count is {}, which the file's name doesn't say", name, count);
    }
    if (count > options_.limits.shards) {
      return fail(ErrorCode::kCorrupt, "{}: {} shards exceed the limit of {}", name, count, options_.limits.shards);
    }
    // The other files are opened through their folder, which holds links to its rules.
    if (!result_.folder_) {
      VN_ASSIGN(ModelFolder beside, ModelFolder::open(path.parent_path(), options_));
      result_.folder_ = std::move(beside);
    }
    return open_gguf_shards(*split, std::move(given));
  }

  Status open_gguf_shards(const SplitName& split, GgufFile given) {
    std::vector<std::string> names;
    for (std::uint64_t number = 1; number <= split.count; ++number) names.push_back(split.file_name(number));
    VN_TRY(check_present(names));
    std::optional<std::uint64_t> num_tensors;
    std::string architecture;
    for (std::uint64_t i = 0; i < split.count; ++i) {
      if (i + 1 == split.number) {
        // Reached once: `number` is one of 1 .. count. NOLINTNEXTLINE(bugprone-use-after-move)
        VN_TRY(add_gguf_shard(std::move(given), i, split.count, num_tensors, architecture));
        continue;
      }
      VN_ASSIGN(auto file, result_.folder_->map(names[i]));
      VN_ASSIGN(GgufFile shard, GgufFile::open(file, options_));
      VN_TRY(add_gguf_shard(std::move(shard), i, split.count, num_tensors, architecture));
    }
    if (num_tensors && *num_tensors != result_.tensors_.size()) {
      return fail(ErrorCode::kCorrupt, "{}: split.tensors.count {}, found {}", result_.name_, *num_tensors,
                  result_.tensors_.size());
    }
    return {};
  }

  /// Checks that `shard` is number `i` of the set. `num_tensors` and `architecture` hold what the shards before said.
  Status add_gguf_shard(GgufFile shard, std::uint64_t i, std::uint64_t count, std::optional<std::uint64_t>& num_tensors,
                        std::string& architecture) {
    const std::string& name = shard.file()->name();
    VN_ASSIGN(const SplitKeys keys, read_split_keys(shard.metadata()));
    if (keys.count != count || keys.number != i) {
      const auto shown = [](std::optional<std::uint64_t> value) {
        return value ? fmt::format("{}", *value) : std::string("absent");
      };
      return fail(ErrorCode::kCorrupt, "{}: split.no is {} and split.count {}, expected {} and {}", name,
                  shown(keys.number), shown(keys.count), i, count);
    }
    if (num_tensors && keys.num_tensors && *num_tensors != *keys.num_tensors) {
      return fail(ErrorCode::kCorrupt, "{}: split.tensors.count is {}, but {} in the shards before: another model's?",
                  name, *keys.num_tensors, *num_tensors);
    }
    if (keys.num_tensors) num_tensors = keys.num_tensors;
    VN_ASSIGN(const auto stated, shard.metadata().find_string("general.architecture"));
    if (stated && !architecture.empty() && *stated != architecture) {
      return fail(ErrorCode::kCorrupt, "{}: general.architecture is '{}', but '{}' in the shards before", name,
                  escape(*stated), escape(architecture));
    }
    if (stated) architecture = *stated;
    add_gguf(std::move(shard));
    return {};
  }

  void add_gguf(GgufFile shard) {
    result_.container_ = ContainerKind::kGguf;
    if (!result_.gguf_) result_.gguf_ = shard.metadata();
    add_records(shard.file(), shard.take_tensors(), shard.warnings());
  }

  // --- both ------------------------------------------------------------------------------------------------------

  void add_records(std::shared_ptr<const MappedFile> file, std::vector<TensorRecord> records,
                   const std::vector<std::string>& warnings) {
    const auto file_index = static_cast<std::uint32_t>(result_.files_.size());
    for (TensorRecord& record : records) record.file_index = file_index;
    if (result_.tensors_.empty()) {
      result_.tensors_ = std::move(records);
    } else {
      std::move(records.begin(), records.end(), std::back_inserter(result_.tensors_));
    }
    result_.files_.push_back(std::move(file));
    result_.warnings_.insert(result_.warnings_.end(), warnings.begin(), warnings.end());
  }

  const OpenOptions& options_;
  CheckpointFiles result_;
  std::optional<ShardIndex> shard_index_;
};

Result<CheckpointFiles> CheckpointFiles::open(const fs::path& path, const OpenOptions& options) {
  return CheckpointOpener(options).open(path);
}

Result<CheckpointFiles> CheckpointFiles::from_gguf(const std::shared_ptr<const MappedFile>& file,
                                                   const OpenOptions& options) {
  return CheckpointOpener(options).open_gguf(file);
}

Result<CheckpointFiles> CheckpointFiles::from_records(ContainerKind container, std::vector<TensorRecord> records,
                                                      std::shared_ptr<const MappedFile> file) {
  CheckpointFiles result;
  result.container_ = container;
  result.name_ = file->name();
  result.tensors_ = std::move(records);
  VN_ASSIGN(result.index_, TensorIndex::build(result.tensors_));
  result.files_.push_back(std::move(file));
  return result;
}

const TensorRecord* CheckpointFiles::find(std::string_view name) const {
  const auto at = index_.find(tensors_, name);
  return at ? &tensors_[*at] : nullptr;
}

Result<std::shared_ptr<const MappedFile>> CheckpointFiles::side_file(SideFile which) const {
  if (!folder_) return nullptr;
  return folder_->side_file(which);
}

Status CheckpointFiles::check_unchanged() const {
  for (const auto& file : files_) {
    VN_TRY(file->check_unchanged());
    if (file->failed()) return fail(ErrorCode::kIo, "{}: the file was cut short while it was read", file->name());
  }
  return {};
}

}  // namespace vernier
