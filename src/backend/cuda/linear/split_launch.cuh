// Launches of SplitProduct for one packing; the .cu files beside this compile one or two each.
#pragma once

#include "backend/cuda/linear/split_product.cuh"

namespace vernier::cuda {

template <Packing kPacking, int kBlocks>
__global__ void __launch_bounds__(kSplitThreads, 1) split_product_kernel(const __grid_constant__ SplitSource source) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  using Product = SplitProduct<kPacking, kBlocks>;
  static_assert(sizeof(typename Product::Shared) <= kSplitSharedBytes);
  extern __shared__ __align__(1024) unsigned char memory[];
  Product::run(source, *reinterpret_cast<typename Product::Shared*>(memory));
#endif
}

template <Packing kPacking, int kBlocks>
cudaError_t launch_split(const SplitSource& source, cudaStream_t stream) {
  const auto kernel = split_product_kernel<kPacking, kBlocks>;
  const cudaError_t error =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSplitSharedBytes);
  if (error != cudaSuccess) return error;
  cudaLaunchAttribute attributes[2] = {};
  attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[0].val.programmaticStreamSerializationAllowed = launches_overlap ? 1 : 0;
  attributes[1].id = cudaLaunchAttributeClusterDimension;
  attributes[1].val.clusterDim.x = static_cast<unsigned>(source.split);
  attributes[1].val.clusterDim.y = 1;
  attributes[1].val.clusterDim.z = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(static_cast<unsigned>(source.row_tiles * source.token_tiles * source.split));
  config.blockDim = dim3(kSplitThreads);
  config.dynamicSmemBytes = kSplitSharedBytes;
  config.stream = stream;
  config.attrs = attributes;
  config.numAttrs = source.split > 1 ? 2 : 1;
  return cudaLaunchKernelEx(&config, kernel, source);
}

}  // namespace vernier::cuda
