// Room for blocks of several kernels on a multiprocessor.
#pragma once

#include "backend/cuda/predecessor.cuh"

namespace vernier::cuda {

/// launch_dependent(), and a multiprocessor that the kernel's blocks find idle gives all that it can to shared memory,
/// so that blocks of the kernels behind find room beside them: how much it gives changes only while it is idle.
template <class... Parameters>  // NOLINTNEXTLINE(readability-function-size): as a launch has them
cudaError_t launch_leaving_room(void (*kernel)(Parameters...), dim3 grid, unsigned threads, std::size_t shared_bytes,
                                cudaStream_t stream, const std::type_identity_t<Parameters>&... parameters) {
  const cudaError_t error =
      cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout, cudaSharedmemCarveoutMaxShared);
  return error != cudaSuccess ? error : launch_dependent(kernel, grid, threads, shared_bytes, stream, parameters...);
}

}  // namespace vernier::cuda
