#include "backend/cuda/linear/split_launch.cuh"

namespace vernier::cuda {

template cudaError_t launch_split<Packing::kBF16, 1>(const SplitSource&, cudaStream_t);
template cudaError_t launch_split<Packing::kBF16, 2>(const SplitSource&, cudaStream_t);

}  // namespace vernier::cuda
