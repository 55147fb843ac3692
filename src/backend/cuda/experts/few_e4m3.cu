#include "backend/cuda/experts/few_launch.cuh"

namespace vernier::cuda {
const FewKernels kFewE4M3 = kFewKernels<Packing::kE4M3>;
}  // namespace vernier::cuda
