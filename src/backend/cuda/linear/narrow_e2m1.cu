#include "backend/cuda/linear/narrow_kernels.h"
#include "backend/cuda/linear/narrow_launch.cuh"

namespace vernier::cuda {
const NarrowKernels kNarrowE2M1ByE4M3 = kNarrowKernels<Packing::kE2M1ByE4M3>;
const NarrowKernels kNarrowE2M1ByE8M0 = kNarrowKernels<Packing::kE2M1ByE8M0>;
}  // namespace vernier::cuda
