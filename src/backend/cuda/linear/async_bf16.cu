#include "backend/cuda/linear/async_launch.cuh"

namespace vernier::cuda {

template cudaError_t launch_async<Packing::kBF16>(const AsyncSource&, const AsyncLaunch&);

}  // namespace vernier::cuda
