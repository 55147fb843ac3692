#include "backend/cuda/linear/narrow_kernels.h"
#include "backend/cuda/linear/narrow_launch.cuh"

namespace vernier::cuda {
const NarrowKernels kNarrowE4M3 = kNarrowKernels<Packing::kE4M3>;
const NarrowKernels kNarrowE4M3ByGrid = kNarrowKernels<Packing::kE4M3ByGrid>;
}  // namespace vernier::cuda
