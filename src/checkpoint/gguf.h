// Reads one GGUF file (version 2 or 3, little-endian) into metadata and tensor records. Split sets are joined by
// CheckpointFiles; what the keys and the tensors mean is decided elsewhere.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "base/mapped_file.h"
#include "base/result.h"
#include "checkpoint/container_options.h"
#include "checkpoint/gguf_metadata.h"
#include "checkpoint/tensor_record.h"

namespace vernier {

/// The header of one GGUF file, fully checked: every length, type, offset and size agrees with the file. A file without
/// tensors (a vocabulary, or the first shard of a split) is fine. Errors: kCorrupt and, for versions, byte orders and
/// look-alikes, kUnsupported; messages begin with the file's base name. Allocates in proportion to the header.
class GgufFile {
 public:
  static Result<GgufFile> open(const std::filesystem::path& path, const OpenOptions& options = {});
  static Result<GgufFile> open(const std::shared_ptr<const MappedFile>& file, const OpenOptions& options = {});

  [[nodiscard]] const std::shared_ptr<const MappedFile>& file() const { return file_; }
  [[nodiscard]] std::uint32_t version() const { return version_; }
  [[nodiscard]] std::uint64_t alignment() const { return alignment_; }
  [[nodiscard]] const GgufMetadata& metadata() const { return metadata_; }
  /// In the order of the file, names unique.
  [[nodiscard]] const std::vector<TensorRecord>& tensors() const { return tensors_; }
  /// Moves the records out.
  [[nodiscard]] std::vector<TensorRecord> take_tensors() { return std::move(tensors_); }
  /// What `lenient` let pass.
  [[nodiscard]] const std::vector<std::string>& warnings() const { return warnings_; }

 private:
  friend class GgufReader;

  std::shared_ptr<const MappedFile> file_;
  std::uint32_t version_ = 0;
  std::uint64_t alignment_ = 32;
  GgufMetadata metadata_;
  std::vector<TensorRecord> tensors_;
  std::vector<std::string> warnings_;
};

}  // namespace vernier
