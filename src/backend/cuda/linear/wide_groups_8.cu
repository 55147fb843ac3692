#include "backend/cuda/linear/wide_launch.cuh"

namespace vernier::cuda {

template cudaError_t launch_wide_of<Packing::kGroups8>(const ProductSource&, cudaStream_t);
template cudaError_t launch_wide_of<Packing::kGroups4Table>(const ProductSource&, cudaStream_t);
template cudaError_t launch_wide_of<Packing::kGroups4TableSuper>(const ProductSource&, cudaStream_t);

}  // namespace vernier::cuda
