#include "backend/cuda/linear/wide_launch.cuh"

namespace vernier::cuda {

template cudaError_t launch_wide_of<Packing::kGroups4>(const WideSource&, cudaStream_t);
template cudaError_t launch_wide_of<Packing::kGroups4Minimum>(const WideSource&, cudaStream_t);
template cudaError_t launch_wide_of<Packing::kGroups4Super>(const WideSource&, cudaStream_t);

}  // namespace vernier::cuda
