#include "backend/cuda/linear/async_groups_launch.cuh"

namespace vernier::cuda {

template cudaError_t launch_async_groups<Packing::kGroups4>(const AsyncSource&, const AsyncLaunch&);
template cudaError_t launch_async_groups<Packing::kGroups4Minimum>(const AsyncSource&, const AsyncLaunch&);
template cudaError_t launch_async_groups<Packing::kGroups4Super>(const AsyncSource&, const AsyncLaunch&);

}  // namespace vernier::cuda
