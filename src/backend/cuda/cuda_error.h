// CUDA's error codes as Status, in words. Nothing in backend/cuda throws or aborts.
#pragma once

#include <cuda_runtime_api.h>

#include <string_view>

#include "base/result.h"

namespace vernier::cuda {

/// kOutOfMemory or kDevice with CUDA's own words behind `what` ("copying to the GPU"), or success.
[[nodiscard]] Status cuda_status(cudaError_t error, std::string_view what);

}  // namespace vernier::cuda

/// Evaluates a call of the CUDA runtime and returns its error, with the call's text, from the enclosing function.
#define VN_CUDA(expression) VN_TRY(::vernier::cuda::cuda_status((expression), #expression))
