// What the GPU can do at most, measured: the denominators of the shares that a benchmark reports.
#pragma once

#include "backend/cuda/cuda_context.h"

namespace vernier::cuda {

/// Reads `memory` once in 16-byte loads of all multiprocessors, and multiplies bf16 from registers on all tensor cores
/// with the portable instruction (on sm_90 the warp-group form can be half as fast again). Some 5 ms; the stream is
/// idle at the end. Memory should be much larger than the last cache.
[[nodiscard]] Result<Ceilings> measure_ceilings(CudaContext& context, const Buffer& memory);

}  // namespace vernier::cuda
