#include "backend/cuda/linear/narrow_ring_launch.cuh"

namespace vernier::cuda {
const RingKernels kRingBF16 = kRingPlainKernels<Packing::kBF16>;
}  // namespace vernier::cuda
