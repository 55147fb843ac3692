#include "backend/cuda/experts/few_launch.cuh"

namespace vernier::cuda {
const FewKernels kFewE2M1ByE8M0 = kFewKernels<Packing::kE2M1ByE8M0>;
}  // namespace vernier::cuda
