// Routing and experts of the CUDA backend. Nothing here waits for the GPU: which experts a step uses stays on the
// device.
#pragma once

#include "backend/backend.h"
#include "backend/cuda/cuda_context.h"

namespace vernier::cuda {

/// These enqueue kernels and don't wait. Arguments have passed check_args().
[[nodiscard]] Status route_experts(CudaContext& context, const RouteArgs& args);
/// The first call with a bank copies its table of weights to the device; call once before capturing a graph.
[[nodiscard]] Status expert_mlp(CudaContext& context, const ExpertMlpArgs& args);

}  // namespace vernier::cuda
