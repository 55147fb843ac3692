#include "backend/cuda/linear/narrow_kernels.h"
#include "backend/cuda/linear/narrow_launch.cuh"

namespace vernier::cuda {
const NarrowKernels kNarrowF32 = kNarrowGroupKernels<Packing::kF32>;
}  // namespace vernier::cuda
