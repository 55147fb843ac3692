#include "backend/cuda/linear/wide_launch.cuh"

namespace vernier::cuda {

template cudaError_t launch_wide_of<Packing::kGroups2Super>(const ProductSource&, cudaStream_t);
template cudaError_t launch_wide_of<Packing::kGroups3Super>(const ProductSource&, cudaStream_t);
template cudaError_t launch_wide_of<Packing::kGroups6Super>(const ProductSource&, cudaStream_t);

}  // namespace vernier::cuda
