#include "backend/cuda/linear/async_launch.cuh"

namespace vernier::cuda {

template cudaError_t launch_async<Packing::kE2M1ByE4M3>(const AsyncSource&, const AsyncLaunch&);
template cudaError_t launch_async<Packing::kE2M1ByE8M0>(const AsyncSource&, const AsyncLaunch&);

}  // namespace vernier::cuda
