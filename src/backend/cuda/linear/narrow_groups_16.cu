#include "backend/cuda/linear/narrow_kernels.h"
#include "backend/cuda/linear/narrow_launch.cuh"

namespace vernier::cuda {
const NarrowKernels kNarrowGroups2Super = kNarrowGroupKernels<Packing::kGroups2Super>;
const NarrowKernels kNarrowGroups3Super = kNarrowGroupKernels<Packing::kGroups3Super>;
const NarrowKernels kNarrowGroups6Super = kNarrowGroupKernels<Packing::kGroups6Super>;
}  // namespace vernier::cuda
