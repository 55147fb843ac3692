#include "backend/cuda/linear/narrow_ring_launch.cuh"

namespace vernier::cuda {
const RingKernels kRingE4M3 = kRingKernels<Packing::kE4M3>;
const RingKernels kRingE4M3ByGrid = kRingKernels<Packing::kE4M3ByGrid>;
}  // namespace vernier::cuda
