#include "backend/cuda/linear/split_launch.cuh"

namespace vernier::cuda {

template cudaError_t launch_split<Packing::kE2M1ByE4M3, 1>(const SplitSource&, cudaStream_t);
template cudaError_t launch_split<Packing::kE2M1ByE4M3, 2>(const SplitSource&, cudaStream_t);
template cudaError_t launch_split<Packing::kE2M1ByE8M0, 1>(const SplitSource&, cudaStream_t);
template cudaError_t launch_split<Packing::kE2M1ByE8M0, 2>(const SplitSource&, cudaStream_t);

}  // namespace vernier::cuda
