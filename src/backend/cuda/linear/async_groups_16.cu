#include "backend/cuda/linear/async_groups_launch.cuh"

namespace vernier::cuda {

template cudaError_t launch_async_groups<Packing::kGroups2Super>(const AsyncSource&, const AsyncLaunch&);
template cudaError_t launch_async_groups<Packing::kGroups3Super>(const AsyncSource&, const AsyncLaunch&);
template cudaError_t launch_async_groups<Packing::kGroups6Super>(const AsyncSource&, const AsyncLaunch&);

}  // namespace vernier::cuda
