// Opens whatever a user calls a model - a GGUF file or split set, a safetensors file, a folder in Hugging Face layout -
// and gives one list of tensors plus the metadata beside them. Reads headers only.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/mapped_file.h"
#include "base/result.h"
#include "checkpoint/container_options.h"
#include "checkpoint/gguf_metadata.h"
#include "checkpoint/model_folder.h"
#include "checkpoint/tensor_record.h"

namespace vernier {

enum class ContainerKind : std::uint8_t {
  kGguf,
  kSafetensors,
  kNone,  ///< a folder without weights, opened with need_tensors = false
};

/// "gguf", "safetensors" or "none".
[[nodiscard]] std::string_view container_name(ContainerKind kind);

/// All tensors of a checkpoint, over all its files, each checked by its container's reader; names are unique over all
/// of them. Immutable after opening, safe to read from any thread; records share ownership of the mapped files.
///
/// Errors: kNotFound (no such path), kCorrupt (also shards missing: all are listed), kUnsupported, kOutOfMemory
/// (mapping).
class CheckpointFiles {
 public:
  /// `path` is a .gguf (any shard of a split set), a .safetensors (with its index's other shards, if it has an index),
  /// an index JSON, or a folder that holds one model. Files in the folder that are symbolic links must lead into an
  /// allowed root (see OpenOptions::allowed_roots).
  static Result<CheckpointFiles> open(const std::filesystem::path& path, const OpenOptions& options = {});
  /// A GGUF that isn't a file of its own: the embedded model, a fuzz input. Must not be one shard of several.
  static Result<CheckpointFiles> from_gguf(const std::shared_ptr<const MappedFile>& file,
                                           const OpenOptions& options = {});

  /// Tensors that are no file's: `records` lie in `file` as if a reader of that container had found them there. There
  /// are no metadata and no side files. kCorrupt when names repeat.
  static Result<CheckpointFiles> from_records(ContainerKind container, std::vector<TensorRecord> records,
                                              std::shared_ptr<const MappedFile> file);

  [[nodiscard]] ContainerKind container() const { return container_; }
  /// Base name of what was opened, escaped: for messages.
  [[nodiscard]] const std::string& name() const { return name_; }
  /// In the order of the files and, within one, of its header.
  [[nodiscard]] const std::vector<TensorRecord>& tensors() const { return tensors_; }
  /// The tensor called `name`, or null.
  [[nodiscard]] const TensorRecord* find(std::string_view name) const;
  /// Positions in tensors() in ascending order of names.
  [[nodiscard]] std::span<const std::uint32_t> by_name() const { return index_.by_name(); }

  /// The metadata of the GGUF file (of the first shard), or null for safetensors.
  [[nodiscard]] const GgufMetadata* gguf() const { return gguf_ ? &*gguf_ : nullptr; }
  /// A text file beside the weights, or null when it isn't there (always null for GGUF given as a file). Opened at each
  /// call, checked against its size limit; text_of() gives the text.
  [[nodiscard]] Result<std::shared_ptr<const MappedFile>> side_file(SideFile which) const;

  /// The weight files in shard order; TensorRecord::file_index points here.
  [[nodiscard]] const std::vector<std::shared_ptr<const MappedFile>>& files() const { return files_; }
  /// What `lenient` let pass, and files that were left unread although they look like weights.
  [[nodiscard]] const std::vector<std::string>& warnings() const { return warnings_; }
  /// kIo when a weight file changed on disk since it was opened, or lost bytes that were read.
  [[nodiscard]] Status check_unchanged() const;

 private:
  friend class CheckpointOpener;

  ContainerKind container_ = ContainerKind::kNone;
  std::string name_;
  std::vector<TensorRecord> tensors_;
  TensorIndex index_;
  std::optional<GgufMetadata> gguf_;
  std::optional<ModelFolder> folder_;
  std::vector<std::shared_ptr<const MappedFile>> files_;
  std::vector<std::string> warnings_;
};

}  // namespace vernier
