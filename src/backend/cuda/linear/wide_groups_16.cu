#include "backend/cuda/linear/wide_launch.cuh"

namespace vernier::cuda {

template cudaError_t launch_wide_of<Packing::kGroups2Super>(const WideSource&, cudaStream_t);
template cudaError_t launch_wide_of<Packing::kGroups3Super>(const WideSource&, cudaStream_t);
template cudaError_t launch_wide_of<Packing::kGroups6Super>(const WideSource&, cudaStream_t);

}  // namespace vernier::cuda
