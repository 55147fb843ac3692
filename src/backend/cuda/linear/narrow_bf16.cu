#include "backend/cuda/linear/narrow_kernels.h"
#include "backend/cuda/linear/narrow_launch.cuh"

namespace vernier::cuda {
const NarrowKernels kNarrowBF16 = kNarrowPlainKernels<Packing::kBF16>;
const NarrowKernels kNarrowF16 = kNarrowPlainKernels<Packing::kF16>;
}  // namespace vernier::cuda
