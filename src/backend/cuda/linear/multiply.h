// A linear's launch, whatever its weights.
#pragma once

#include "backend/cuda/cuda_context.h"
#include "backend/cuda/linear/product.h"

namespace vernier::cuda {

/// Enqueues the products of a batch whose weights are all packed alike (or not at all).
[[nodiscard]] Status multiply(CudaContext& context, LinearBatch batch);

}  // namespace vernier::cuda
