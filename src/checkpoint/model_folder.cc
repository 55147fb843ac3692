#include "checkpoint/model_folder.h"

#include <algorithm>
#include <array>
#include <system_error>

#include "checkpoint/name_check.h"

namespace vernier {
namespace {

namespace fs = std::filesystem;

struct SideFileRow {
  std::string_view name;
  std::uint64_t ContainerLimits::*limit;
};
constexpr std::array<SideFileRow, 6> kSideFiles = {{{"config.json", &ContainerLimits::config_bytes},
                                                    {"generation_config.json", &ContainerLimits::config_bytes},
                                                    {"tokenizer.json", &ContainerLimits::tokenizer_bytes},
                                                    {"tokenizer_config.json", &ContainerLimits::config_bytes},
                                                    {"chat_template.jinja", &ContainerLimits::template_bytes},
                                                    {"hf_quant_config.json", &ContainerLimits::config_bytes}}};

const SideFileRow& row_of(SideFile which) { return kSideFiles[static_cast<std::size_t>(which)]; }

/// True when `path` is `root` or lies below it; both canonical.
bool is_within(const fs::path& path, const fs::path& root) {
  const auto [at, _] = std::mismatch(root.begin(), root.end(), path.begin(), path.end());
  return at == root.end();
}

/// The blobs folder when `folder` is a snapshot in a hub cache: `<model>/snapshots/<revision>` beside `<model>/blobs`.
/// A blobs folder that is itself a link proves nothing, as whoever made the snapshot could have made it.
void add_hub_blobs(const fs::path& folder, std::vector<fs::path>& roots) {
  if (folder.parent_path().filename() != "snapshots") return;
  const fs::path blobs = folder.parent_path().parent_path() / "blobs";
  std::error_code error;
  if (fs::symlink_status(blobs, error).type() == fs::file_type::directory) roots.push_back(blobs);
}

}  // namespace

std::string_view side_file_name(SideFile which) { return row_of(which).name; }

std::string_view text_of(const std::shared_ptr<const MappedFile>& file) {
  if (file == nullptr || file->size() == 0) return {};
  const auto bytes = file->bytes({0, file->size()});
  return bytes ? std::string_view(reinterpret_cast<const char*>(bytes->data()), bytes->size()) : std::string_view();
}

Status check_plain_file_name(std::string_view name) {
  const bool has_drive = name.size() >= 2 && name[1] == ':';
  if (name.empty() || name == "." || name == ".." || has_drive || !is_clean_text(name) ||
      name.find_first_of("/\\") != std::string_view::npos) {
    return fail(ErrorCode::kCorrupt, "shard name must be a plain file name in the model folder, found '{}'",
                escape(name));
  }
  return {};
}

Result<ModelFolder> ModelFolder::open(const fs::path& path, const OpenOptions& options) {
  std::error_code error;
  ModelFolder folder;
  folder.limits_ = options.limits;
  folder.path_ = fs::canonical(path.empty() ? fs::path(".") : path, error);
  if (error) return fail(ErrorCode::kNotFound, "{}: no such folder", escape(path.filename().string()));
  if (!fs::is_directory(folder.path_, error)) {
    return fail(ErrorCode::kInvalidArgument, "{}: not a folder", escape(path.filename().string()));
  }
  folder.name_ = escape(folder.path_.filename().string());
  folder.roots_.push_back(folder.path_);
  add_hub_blobs(folder.path_, folder.roots_);
  for (const fs::path& root : options.allowed_roots) {
    folder.roots_.push_back(fs::canonical(root, error));
    if (error) {
      return fail(ErrorCode::kInvalidArgument, "allowed root '{}': {}", escape(root.string()), error.message());
    }
  }
  return folder;
}

Result<std::vector<std::string>> ModelFolder::list(std::string_view suffix) const {
  std::error_code error;
  std::vector<std::string> names;
  for (fs::directory_iterator at(path_, error), end; !error && at != end; at.increment(error)) {
    std::string name = at->path().filename().string();
    std::error_code ignored;
    if (name.ends_with(suffix) && !at->is_directory(ignored)) names.push_back(std::move(name));
  }
  if (error) return fail(ErrorCode::kIo, "{}: cannot list the folder: {}", name_, error.message());
  std::sort(names.begin(), names.end());
  return names;
}

bool ModelFolder::contains(std::string_view file_name) const {
  std::error_code error;
  return check_plain_file_name(file_name) && fs::exists(fs::symlink_status(path_ / file_name, error));
}

Result<std::shared_ptr<const MappedFile>> ModelFolder::map(std::string_view file_name) const {
  VN_TRY(check_plain_file_name(file_name));
  fs::path path = path_ / file_name;
  std::error_code error;
  if (fs::is_symlink(fs::symlink_status(path, error))) {
    path = fs::canonical(path, error);
    if (error) {
      return fail(ErrorCode::kNotFound, "{}: is a symbolic link to a file that doesn't exist", escape(file_name));
    }
    if (std::none_of(roots_.begin(), roots_.end(), [&](const fs::path& root) { return is_within(path, root); })) {
      return fail_with_hint(ErrorCode::kCorrupt, "allow the folder it leads to with --allow-root",
                            "{}: is a symbolic link out of the model folder '{}'", escape(file_name), name_);
    }
  }
  return MappedFile::open(path, {.follow_symlinks = false, .name = std::string(file_name)});
}

Result<std::shared_ptr<const MappedFile>> ModelFolder::side_file(SideFile which) const {
  const SideFileRow& row = row_of(which);
  if (!contains(row.name)) return nullptr;
  VN_ASSIGN(auto file, map(row.name));
  if (file->size() > limits_.*row.limit) {
    return fail(ErrorCode::kCorrupt, "{}: {} bytes exceed the limit of {}", row.name, file->size(), limits_.*row.limit);
  }
  return file;
}

}  // namespace vernier
