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
  const int blocks = source.row_tiles * source.token_tiles * source.split;
  return launch_dependent(kernel, dim3(static_cast<unsigned>(blocks)), kSplitThreads, kSplitSharedBytes, stream,
                          source);
}

}  // namespace vernier::cuda
