// The kernels behind ops/attention.cu, which chooses among them.
#pragma once

#include "backend/cuda/ops/attention_state.cuh"
#include "backend/cuda/ops/launch.h"

namespace vernier::cuda {

/// Any element type, head_dim up to 512: fp32 arithmetic, one query head a block.
[[nodiscard]] Status attend_scalar(CudaContext& context, const AttentionKernelArgs& args);
inline constexpr std::int32_t kMaxHeadDim = 512;

}  // namespace vernier::cuda
