#include "backend/cuda/linear/narrow_kernels.h"
#include "backend/cuda/linear/narrow_launch.cuh"

namespace vernier::cuda {
const NarrowKernels kNarrowGroups4 = kNarrowGroupKernels<Packing::kGroups4>;
const NarrowKernels kNarrowGroups4Minimum = kNarrowGroupKernels<Packing::kGroups4Minimum>;
const NarrowKernels kNarrowGroups4Super = kNarrowGroupKernels<Packing::kGroups4Super>;
}  // namespace vernier::cuda
