#include "backend/cuda/linear/wide_launch.cuh"

namespace vernier::cuda {

template cudaError_t launch_wide_of<Packing::kGroups8>(const WideSource&, cudaStream_t);
template cudaError_t launch_wide_of<Packing::kGroups4Table>(const WideSource&, cudaStream_t);
template cudaError_t launch_wide_of<Packing::kGroups4TableSuper>(const WideSource&, cudaStream_t);

}  // namespace vernier::cuda
