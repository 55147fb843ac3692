// Memory of a backend: what owns it, and activations as seen through it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace vernier {

/// A row-major fp32 matrix in the backend's memory, not owned. Row r begins at data + r * stride (in floats).
struct MatrixView {
  float* data = nullptr;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::int64_t stride = 0;

  [[nodiscard]] float* row(std::int64_t r) const { return data + r * stride; }
  /// Rows [first, first + count).
  [[nodiscard]] MatrixView slice_rows(std::int64_t first, std::int64_t count) const {
    return {row(first), count, cols, stride};
  }
  /// Columns [first, first + count) of every row.
  [[nodiscard]] MatrixView slice_cols(std::int64_t first, std::int64_t count) const {
    return {data + first, rows, count, stride};
  }
};

/// Memory of a backend, freed on destruction. Aligned to at least 64 bytes; contents undefined unless stated.
class Buffer {
 public:
  Buffer() = default;
  Buffer(void* data, std::size_t size, void (*release)(void*)) : data_(data, release), size_(size) {}
  [[nodiscard]] void* data() const { return data_.get(); }
  [[nodiscard]] std::size_t size() const { return size_; }

 private:
  std::unique_ptr<void, void (*)(void*)> data_{nullptr, [](void*) {}};
  std::size_t size_ = 0;
};

}  // namespace vernier
