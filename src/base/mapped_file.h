// Read-only bytes of a regular file through mmap. The only way to reach file bytes is bytes(Extent), which checks
// bounds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>

#include "base/result.h"

namespace vernier {

/// A byte range of a file.
struct Extent {
  std::uint64_t offset = 0;
  std::uint64_t size = 0;
};

/// How MappedFile::open() treats a path.
struct MapOptions {
  bool follow_symlinks = true;  ///< false: a symbolic link as last component is refused
  std::string name = {};        ///< shown instead of the base name, when not empty
};

/// A mapped file. Shared ownership: weights keep the mapping alive. Safe to read from any thread.
///
/// When the file is truncated by someone while mapped, reads of the lost pages yield zero bytes instead of a SIGBUS and
/// failed() turns true, so that the step that read them can be reported as an error.
class MappedFile {
 public:
  /// Opens and maps a regular file. Directories, FIFOs, devices and sockets are refused ("not a regular file"); nothing
  /// blocks on opening. `name()` is the base name, used in messages instead of the path.
  static Result<std::shared_ptr<const MappedFile>> open(const std::filesystem::path& path,
                                                        const MapOptions& options = {});
  /// Wraps bytes that outlive the process' use of them (the embedded demo model, fuzz inputs).
  static std::shared_ptr<const MappedFile> wrap(std::span<const std::byte> bytes, std::string name);
  /// Memory in the place of a file, for weights that are made instead of read: zero bytes, to be filled through `bytes`
  /// before others read them. Takes address space only until it's written.
  struct InMemory {
    std::shared_ptr<const MappedFile> file;
    std::span<std::byte> bytes;
    bool is_old = false;  ///< the bytes are those of a file that was there
  };
  static Result<InMemory> in_memory(std::uint64_t size, std::string name);
  /// The same in a file, so that the system may drop pages and read them again. The file is made; one that has this
  /// size is taken as it is. What is written reaches it in time.
  static Result<InMemory> in_file(const std::filesystem::path& path, std::uint64_t size);

  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] std::uint64_t size() const { return size_; }
  /// The bytes of an extent, or kCorrupt when it doesn't lie within the file.
  [[nodiscard]] Result<std::span<const std::byte>> bytes(Extent extent) const;
  /// kIo when size, modification time or inode differ from those at opening ("file changed while loading").
  [[nodiscard]] Status check_unchanged() const;
  /// True once a read hit a page that the file no longer has.
  [[nodiscard]] bool failed() const;

 private:
  MappedFile() = default;

  std::string name_;
  std::filesystem::path path_;
  const std::byte* data_ = nullptr;
  std::uint64_t size_ = 0;
  bool owned_ = false;
  std::uint64_t inode_ = 0;
  std::int64_t modified_ns_ = 0;
  int guard_ = -1;
};

}  // namespace vernier
