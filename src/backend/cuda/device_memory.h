// Memory of the current GPU as a Buffer.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include "backend/backend.h"

namespace vernier::cuda {

/// Device memory, aligned to 256 bytes. kOutOfMemory says what was needed and what is free. `what` names the use in the
/// message ("activations").
[[nodiscard]] Result<Buffer> allocate_device(std::size_t size_bytes, std::string_view what);

/// Page-locked host memory that the GPU's copy engines reach without staging.
[[nodiscard]] Result<Buffer> allocate_pinned(std::size_t size_bytes, std::string_view what);

/// Page-locks memory of which only reading is allowed, from the page that `bytes` begins in to the one it ends in;
/// released with the result. No page may be locked twice. kOutOfMemory where the system refuses.
[[nodiscard]] Result<Buffer> lock_pages(std::span<const std::byte> bytes);

}  // namespace vernier::cuda
