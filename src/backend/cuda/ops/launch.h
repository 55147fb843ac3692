// Launching a kernel on the context's stream with the error as a Status. Kernels begin as dependents of the one in
// front (predecessor.cuh): each of them calls wait_for_predecessor() before it reads or writes anything, and
// release_successor() before that.
#pragma once

#include <cuda_runtime.h>

#include "backend/cuda/cuda_context.h"
#include "backend/cuda/predecessor.cuh"

namespace vernier::cuda {

struct LaunchShape {
  dim3 grid;
  dim3 block;
  std::size_t shared_bytes = 0;
};

/// Enqueues kernel<<<grid, block, shared_bytes>>>(args...). Errors of the launch itself come back here, those of the
/// kernel's run at the next synchronisation.
template <class... Parameters, class... Args>
[[nodiscard]] Status launch(const CudaContext& context, const LaunchShape& shape, void (*kernel)(Parameters...),
                            Args... args) {
  if (shape.shared_bytes > 48 * 1024) {
    VN_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                 static_cast<int>(shape.shared_bytes)));
  }
  cudaLaunchConfig_t config = {};
  config.gridDim = shape.grid;
  config.blockDim = shape.block;
  config.dynamicSmemBytes = shape.shared_bytes;
  config.stream = context.stream;
  cudaLaunchAttribute attribute = {};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = launches_overlap ? 1 : 0;
  config.attrs = &attribute;
  config.numAttrs = 1;  // devices before sm_90 take no notice
  return cuda_status(cudaLaunchKernelEx(&config, kernel, static_cast<Parameters>(args)...), "kernel launch");
}

}  // namespace vernier::cuda
