#include "backend/cuda/linear/split_launch.cuh"

namespace vernier::cuda {

template cudaError_t launch_split<Packing::kE4M3, 1>(const SplitSource&, cudaStream_t);
template cudaError_t launch_split<Packing::kE4M3, 2>(const SplitSource&, cudaStream_t);
template cudaError_t launch_split<Packing::kE4M3ByGrid, 1>(const SplitSource&, cudaStream_t);

}  // namespace vernier::cuda
