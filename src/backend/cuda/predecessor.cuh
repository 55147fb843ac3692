// Programmatic dependent launch: a kernel may begin before the one in front of it has ended, ask for weights, and wait
// before it touches anything that a kernel writes.
#pragma once

#include <cuda_runtime.h>

#include <type_traits>

#include "backend/cuda/launch_mode.h"

namespace vernier::cuda {

/// Until everything in front on the stream has ended and its writes can be seen.
__device__ __forceinline__ void wait_for_predecessor() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;\n" ::: "memory");
#endif
}

/// Lets the next kernel of the stream begin, if it was launched as a dependent.
__device__ __forceinline__ void release_successor() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;\n");
#endif
}

/// Launches a kernel that calls wait_for_predecessor() in every thread.
template <class... Parameters>  // NOLINTNEXTLINE(readability-function-size): as a launch has them
cudaError_t launch_dependent(void (*kernel)(Parameters...), dim3 grid, unsigned threads, std::size_t shared_bytes,
                             cudaStream_t stream, const std::type_identity_t<Parameters>&... parameters) {
  if (shared_bytes > 48 * 1024) {
    const cudaError_t error =
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared_bytes));
    if (error != cudaSuccess) return error;
  }
  cudaLaunchAttribute attribute = {};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = launches_overlap ? 1 : 0;
  cudaLaunchConfig_t config = {};
  config.gridDim = grid;
  config.blockDim = dim3(threads);
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = 1;  // devices before sm_90 take no notice
  return cudaLaunchKernelEx(&config, kernel, parameters...);
}

}  // namespace vernier::cuda
