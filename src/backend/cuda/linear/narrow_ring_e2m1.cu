#include "backend/cuda/linear/narrow_ring_launch.cuh"

namespace vernier::cuda {
const RingKernels kRingE2M1ByE4M3 = kRingKernels<Packing::kE2M1ByE4M3>;
const RingKernels kRingE2M1ByE8M0 = kRingKernels<Packing::kE2M1ByE8M0>;
}  // namespace vernier::cuda
