#include "backend/cuda/experts/few_launch.cuh"

namespace vernier::cuda {
const FewKernels kFewE4M3ByGrid = kFewKernels<Packing::kE4M3ByGrid>;
}  // namespace vernier::cuda
