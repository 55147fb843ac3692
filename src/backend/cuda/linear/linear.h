// Linear layers and embeddings of the CUDA backend, over weights of every format.
#pragma once

#include "backend/backend.h"
#include "backend/cuda/cuda_context.h"

namespace vernier::cuda {

/// Uploads a weight. The result's pointers are device pointers; its owner is a PlacedWeight (placed_weight.h).
[[nodiscard]] Result<Weight> place_weight(CudaContext& context, const Weight& host);
/// Success: there are kernels for every format of the list.
[[nodiscard]] Status check_format(FormatId format);

/// These enqueue kernels and don't wait. Arguments have passed check_args().
[[nodiscard]] Status linear(CudaContext& context, const LinearArgs& args);
[[nodiscard]] Status embed(CudaContext& context, const EmbedArgs& args);

}  // namespace vernier::cuda
