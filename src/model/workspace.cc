#include "model/workspace.h"

#include <algorithm>

#include "base/checked_math.h"

namespace vernier {

void Workspace::need(Slot slot, std::int64_t cols) {
  std::int64_t& most = cols_[static_cast<std::size_t>(slot)];
  most = std::max(most, cols);
}

Status Workspace::allocate(Backend& backend, std::int64_t max_tokens, std::int64_t max_outputs) {
  for (std::size_t i = 0; i < kSlots; ++i) {
    if (cols_[i] == 0) continue;
    const bool is_final = static_cast<Slot>(i) == Slot::kFinal;
    CheckedU64 size = static_cast<std::uint64_t>(is_final ? max_outputs : max_tokens);
    size *= static_cast<std::uint64_t>(cols_[i]);
    size *= sizeof(float);
    const auto bytes = size.value();
    if (!bytes) return fail(ErrorCode::kOutOfMemory, "activations of {} tokens don't fit in memory", max_tokens);
    VN_ASSIGN(buffers_[i], backend.allocate(*bytes));
  }
  max_tokens_ = max_tokens;
  max_outputs_ = max_outputs;
  return {};
}

MatrixView Workspace::view(Slot slot, std::int64_t rows, std::int64_t cols) const {
  return {static_cast<float*>(buffers_[static_cast<std::size_t>(slot)].data()), rows, cols, cols};
}

std::uint64_t Workspace::size_bytes() const {
  std::uint64_t bytes = 0;
  for (const Buffer& buffer : buffers_) bytes += buffer.size();
  return bytes;
}

std::int32_t* Workspace::integers(Slot slot) const {
  return static_cast<std::int32_t*>(buffers_[static_cast<std::size_t>(slot)].data());
}

}  // namespace vernier
