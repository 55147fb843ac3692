// Little helpers of the file builders: appending little-endian numbers, wrapping and saving bytes.
#pragma once

#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/mapped_file.h"

namespace vernier::test {

/// Appends the bytes of a number (the tests run on little-endian machines, as Vernier does).
template <class T>
void append_number(std::string& out, T value) {
  char bytes[sizeof(T)];
  std::memcpy(bytes, &value, sizeof(T));
  out.append(bytes, sizeof(T));
}

/// The bytes of an array of numbers.
template <class T>
[[nodiscard]] std::string bytes_of(std::span<const T> values) {
  return {reinterpret_cast<const char*>(values.data()), values.size_bytes()};
}

/// Bytes as a MappedFile that owns a copy, so that the copy has exactly the right size: a sanitizer then sees a read of
/// even one byte beyond it.
[[nodiscard]] inline std::shared_ptr<const MappedFile> as_file(std::string_view bytes, std::string name) {
  struct Holder {
    std::unique_ptr<std::byte[]> copy;
    std::shared_ptr<const MappedFile> file;
  };
  auto holder = std::make_shared<Holder>();
  holder->copy = std::make_unique<std::byte[]>(bytes.size());
  if (!bytes.empty()) std::memcpy(holder->copy.get(), bytes.data(), bytes.size());
  holder->file = MappedFile::wrap({holder->copy.get(), bytes.size()}, std::move(name));
  const MappedFile* file = holder->file.get();
  return {std::move(holder), file};
}

inline void save(const std::filesystem::path& path, std::string_view bytes) {
  std::ofstream(path, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

[[nodiscard]] inline std::string load(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

/// An empty folder that goes away with its owner.
class TempFolder {
 public:
  TempFolder() {
    static std::atomic<int> count{0};
    path_ = std::filesystem::temp_directory_path() /
            ("vernier-test-" + std::to_string(getpid()) + "-" + std::to_string(count++));
    std::filesystem::create_directories(path_);
    path_ = std::filesystem::canonical(path_);
  }
  ~TempFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  [[nodiscard]] std::filesystem::path operator/(std::string_view name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

}  // namespace vernier::test
