#include "backend/cuda/linear/async_groups_launch.cuh"

namespace vernier::cuda {

template cudaError_t launch_async_groups<Packing::kGroups8>(const AsyncSource&, const AsyncLaunch&);
template cudaError_t launch_async_groups<Packing::kGroups4Table>(const AsyncSource&, const AsyncLaunch&);
template cudaError_t launch_async_groups<Packing::kGroups4TableSuper>(const AsyncSource&, const AsyncLaunch&);

}  // namespace vernier::cuda
