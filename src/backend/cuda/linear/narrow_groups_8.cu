#include "backend/cuda/linear/narrow_kernels.h"
#include "backend/cuda/linear/narrow_launch.cuh"

namespace vernier::cuda {
const NarrowKernels kNarrowGroups8 = kNarrowGroupKernels<Packing::kGroups8>;
const NarrowKernels kNarrowGroups4Table = kNarrowGroupKernels<Packing::kGroups4Table>;
const NarrowKernels kNarrowGroups4TableSuper = kNarrowGroupKernels<Packing::kGroups4TableSuper>;
}  // namespace vernier::cuda
