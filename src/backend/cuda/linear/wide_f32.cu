#include "backend/cuda/linear/wide_launch.cuh"

namespace vernier::cuda {

template cudaError_t launch_wide_of<Packing::kF32>(const ProductSource&, cudaStream_t);

}  // namespace vernier::cuda
