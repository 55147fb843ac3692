// A device's matrix in host memory and back, for work that the host does in the middle of a step.
#pragma once

#include <span>

#include "backend/backend.h"

namespace vernier {

class HostCopy {
 public:
  explicit HostCopy(Backend& device) : device_(device) {}

  /// Room for `floats`; grows only.
  [[nodiscard]] Status reserve(std::int64_t floats);
  /// A dense matrix [rows, cols] in the reserved memory.
  [[nodiscard]] MatrixView view(std::int64_t rows, std::int64_t cols) const;
  /// Reads `from`, after all work before; the result is dense and valid until the next call.
  [[nodiscard]] Result<MatrixView> download(MatrixView from);
  /// Writes what download() or view() gave into `to`, of the same shape.
  [[nodiscard]] Status upload(MatrixView to) const;

 private:
  Backend& device_;
  Buffer memory_;
};

}  // namespace vernier
