#include "backend/cuda/experts/few_launch.cuh"

namespace vernier::cuda {
const FewKernels kFewBF16 = kFewKernels<Packing::kBF16>;
}  // namespace vernier::cuda
