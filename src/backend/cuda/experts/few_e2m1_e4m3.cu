#include "backend/cuda/experts/few_launch.cuh"

namespace vernier::cuda {
const FewKernels kFewE2M1ByE4M3 = kFewKernels<Packing::kE2M1ByE4M3>;
}  // namespace vernier::cuda
