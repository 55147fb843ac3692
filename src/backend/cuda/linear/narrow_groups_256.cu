#include "backend/cuda/linear/narrow_kernels.h"
#include "backend/cuda/linear/narrow_launch.cuh"

namespace vernier::cuda {
const NarrowKernels kNarrowGroups4Super = kNarrowGroupKernels<Packing::kGroups4Super>;
const NarrowKernels kNarrowGroups5Super = kNarrowGroupKernels<Packing::kGroups5Super>;
const NarrowKernels kNarrowGroups6Super = kNarrowGroupKernels<Packing::kGroups6Super>;
}  // namespace vernier::cuda
