// A folder that holds a model, and the only way to open files in it: names must be plain, and symbolic links may only
// lead into folders that are allowed.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/mapped_file.h"
#include "base/result.h"
#include "checkpoint/container_options.h"

namespace vernier {

/// The files beside the weights of a folder in Hugging Face layout.
enum class SideFile : std::uint8_t {
  kConfig,            ///< config.json
  kGenerationConfig,  ///< generation_config.json
  kTokenizer,         ///< tokenizer.json
  kTokenizerConfig,   ///< tokenizer_config.json
  kChatTemplate,      ///< chat_template.jinja
  kHfQuantConfig,     ///< hf_quant_config.json
};

/// "config.json", ...
[[nodiscard]] std::string_view side_file_name(SideFile which);

/// The bytes of a mapped file as text (null: empty). The view lives as long as the file.
[[nodiscard]] std::string_view text_of(const std::shared_ptr<const MappedFile>& file);

/// See the top of the file. Immutable, safe to use from any thread.
class ModelFolder {
 public:
  /// `path` must be a folder; it may itself be reached through symbolic links.
  static Result<ModelFolder> open(const std::filesystem::path& path, const OpenOptions& options);

  /// Base name, escaped.
  [[nodiscard]] const std::string& name() const { return name_; }
  /// Names of the entries that end in `suffix`, ascending; sub-folders aren't read. kIo when the folder can't be
  /// listed.
  [[nodiscard]] Result<std::vector<std::string>> list(std::string_view suffix) const;
  /// True when the folder has an entry of that (plain) name, whatever it is.
  [[nodiscard]] bool contains(std::string_view file_name) const;

  /// Maps a file of the folder. kCorrupt when `file_name` isn't a plain file name, names something other than a regular
  /// file, or is a symbolic link out of the allowed roots; kNotFound when it isn't there.
  [[nodiscard]] Result<std::shared_ptr<const MappedFile>> map(std::string_view file_name) const;
  /// As map(), null when the file isn't there, kCorrupt when it's larger than its limit.
  [[nodiscard]] Result<std::shared_ptr<const MappedFile>> side_file(SideFile which) const;

 private:
  std::filesystem::path path_;                // canonical
  std::vector<std::filesystem::path> roots_;  // canonical; path_ first
  std::string name_;
  ContainerLimits limits_;
};

/// kCorrupt unless `name` is a plain file name: not empty, no separator of any system, no drive letter, no control
/// character, not "." or "..". Nothing is opened.
[[nodiscard]] Status check_plain_file_name(std::string_view name);

}  // namespace vernier
