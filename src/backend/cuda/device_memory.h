// Memory of the current GPU as a Buffer.
#pragma once

#include <cstddef>
#include <string_view>

#include "backend/backend.h"

namespace vernier::cuda {

/// Device memory, aligned to 256 bytes. kOutOfMemory says what was needed and what is free. `what` names the use in the
/// message ("activations").
[[nodiscard]] Result<Buffer> allocate_device(std::size_t size_bytes, std::string_view what);

/// Page-locked host memory that the GPU's copy engines reach without staging.
[[nodiscard]] Result<Buffer> allocate_pinned(std::size_t size_bytes, std::string_view what);

}  // namespace vernier::cuda
