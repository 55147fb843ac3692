#include "backend/cuda/linear/narrow_kernels.h"
#include "backend/cuda/linear/narrow_launch.cuh"

namespace vernier::cuda {
const NarrowKernels kNarrowGroups4 = kNarrowGroupKernels<Packing::kGroups4>;
const NarrowKernels kNarrowGroups8 = kNarrowGroupKernels<Packing::kGroups8>;
}  // namespace vernier::cuda
