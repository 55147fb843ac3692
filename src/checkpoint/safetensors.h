// Reads the header of one safetensors file into tensor records. Shards and their index are joined by CheckpointFiles.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/mapped_file.h"
#include "base/result.h"
#include "checkpoint/container_options.h"
#include "checkpoint/tensor_record.h"

namespace vernier {

/// The header of one safetensors file, fully checked: the tensors tile the data without holes or overlaps and each has
/// the size of its shape and dtype. Errors: kCorrupt, kUnsupported for look-alikes; messages begin with the file's base
/// name and carry the byte offset within the JSON header. Allocates in proportion to the header.
class SafetensorsFile {
 public:
  static Result<SafetensorsFile> open(const std::filesystem::path& path, const OpenOptions& options = {});
  static Result<SafetensorsFile> open(const std::shared_ptr<const MappedFile>& file, const OpenOptions& options = {});

  [[nodiscard]] const std::shared_ptr<const MappedFile>& file() const { return file_; }
  /// The header's `__metadata__`, in its order.
  [[nodiscard]] const std::vector<std::pair<std::string, std::string>>& metadata() const { return metadata_; }
  /// In the order of the header, names unique. `dtype` is empty for element types that Vernier doesn't compute with
  /// (F4, F6_..., U16, U64, C64, ...FNUZ); `shape` is the header's.
  [[nodiscard]] const std::vector<TensorRecord>& tensors() const { return tensors_; }
  /// Moves the records out.
  [[nodiscard]] std::vector<TensorRecord> take_tensors() { return std::move(tensors_); }
  /// What `lenient` let pass.
  [[nodiscard]] const std::vector<std::string>& warnings() const { return warnings_; }

 private:
  friend class SafetensorsReader;

  std::shared_ptr<const MappedFile> file_;
  std::vector<std::pair<std::string, std::string>> metadata_;
  std::vector<TensorRecord> tensors_;
  std::vector<std::string> warnings_;
};

}  // namespace vernier
