// The entry of the CUDA backend, defined by backend/cuda or, in builds without CUDA, by backend/no_cuda.
#pragma once

#include "backend/backend.h"

namespace vernier {

[[nodiscard]] BackendEntry cuda_backend_entry();

}  // namespace vernier
