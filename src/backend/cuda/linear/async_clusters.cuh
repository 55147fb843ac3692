// What kernels of clusters that multiply asynchronously share beside their products: how they are launched, and how
// threads wait that only ask for copies.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "backend/cuda/linear/async_kernels.h"

namespace vernier::cuda {

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

/// As wait_for_phase(), for threads far ahead of those that multiply: between looks at the barrier they leave the issue
/// slots to them.
__device__ __forceinline__ void wait_idly(std::uint32_t barrier, unsigned parity) {
  asm volatile(
      "{\n.reg .pred done;\nAGAIN:\n"
      "mbarrier.test_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@done bra ENDED;\nnanosleep.u32 500;\nbra AGAIN;\nENDED:\n}\n" ::"r"(barrier),
      "r"(parity)
      : "memory");
}

/// Arrives at a barrier of this block.
__device__ __forceinline__ void arrive_here(std::uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];\n" ::"r"(barrier) : "memory");
}

#endif

/// Launches clusters of two blocks.
inline cudaError_t launch_clusters(void (*kernel)(AsyncSource), const AsyncSource& source, const AsyncLaunch& how) {
  const cudaError_t error =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kAsyncSharedBytes);
  if (error != cudaSuccess) return error;
  cudaLaunchAttribute attributes[2] = {};
  attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[0].val.programmaticStreamSerializationAllowed = 1;
  attributes[1].id = cudaLaunchAttributeClusterDimension;
  attributes[1].val.clusterDim.x = 2;
  attributes[1].val.clusterDim.y = 1;
  attributes[1].val.clusterDim.z = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(how.blocks);
  config.blockDim = dim3(kAsyncThreads);
  config.dynamicSmemBytes = kAsyncSharedBytes;
  config.stream = how.stream;
  config.attrs = attributes;
  config.numAttrs = 2;
  return cudaLaunchKernelEx(&config, kernel, source);
}

}  // namespace vernier::cuda
