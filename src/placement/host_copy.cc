#include "placement/host_copy.h"

namespace vernier {

Status HostCopy::reserve(std::int64_t floats) {
  const std::size_t bytes = static_cast<std::size_t>(floats) * sizeof(float);
  if (bytes <= memory_.size()) return {};
  VN_ASSIGN(memory_, device_.allocate_host(bytes));
  return {};
}

MatrixView HostCopy::view(std::int64_t rows, std::int64_t cols) const {
  return {static_cast<float*>(memory_.data()), rows, cols, cols};
}

Result<MatrixView> HostCopy::download(MatrixView from) {
  VN_TRY(reserve(from.rows * from.cols));
  const MatrixView to = view(from.rows, from.cols);
  const auto row_bytes = static_cast<std::size_t>(from.cols) * sizeof(float);
  if (from.stride == from.cols) {
    VN_TRY(device_.copy_to_host(to.data, from.data, static_cast<std::size_t>(from.rows) * row_bytes));
    return to;
  }
  for (std::int64_t r = 0; r < from.rows; ++r) VN_TRY(device_.copy_to_host(to.row(r), from.row(r), row_bytes));
  return to;
}

Status HostCopy::upload(MatrixView to) const {
  const MatrixView from = view(to.rows, to.cols);
  const auto row_bytes = static_cast<std::size_t>(to.cols) * sizeof(float);
  if (to.stride == to.cols) {
    return device_.copy_to_device(to.data, from.data, static_cast<std::size_t>(to.rows) * row_bytes);
  }
  for (std::int64_t r = 0; r < to.rows; ++r) VN_TRY(device_.copy_to_device(to.row(r), from.row(r), row_bytes));
  return {};
}

}  // namespace vernier
