#include "backend/cuda/linear/narrow_kernels.h"
#include "backend/cuda/linear/narrow_launch.cuh"

namespace vernier::cuda {
const NarrowKernels kNarrowGroups5 = kNarrowGroupKernels<Packing::kGroups5>;
const NarrowKernels kNarrowGroups5Minimum = kNarrowGroupKernels<Packing::kGroups5Minimum>;
const NarrowKernels kNarrowGroups5Super = kNarrowGroupKernels<Packing::kGroups5Super>;
}  // namespace vernier::cuda
