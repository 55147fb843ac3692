#include "backend/cuda/linear/async_groups_launch.cuh"

namespace vernier::cuda {

template cudaError_t launch_async_groups<Packing::kGroups5>(const AsyncSource&, const AsyncLaunch&);
template cudaError_t launch_async_groups<Packing::kGroups5Minimum>(const AsyncSource&, const AsyncLaunch&);
template cudaError_t launch_async_groups<Packing::kGroups5Super>(const AsyncSource&, const AsyncLaunch&);

}  // namespace vernier::cuda
