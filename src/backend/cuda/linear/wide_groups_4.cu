#include "backend/cuda/linear/wide_launch.cuh"

namespace vernier::cuda {

template cudaError_t launch_wide_of<Packing::kGroups4>(const ProductSource&, cudaStream_t);
template cudaError_t launch_wide_of<Packing::kGroups4Minimum>(const ProductSource&, cudaStream_t);
template cudaError_t launch_wide_of<Packing::kGroups4Super>(const ProductSource&, cudaStream_t);

}  // namespace vernier::cuda
