// Launches of WideProduct; the .cu files beside this compile some packings each.
#pragma once

#include "backend/cuda/linear/wide.h"
#include "backend/cuda/linear/wide_kernels.h"
#include "backend/cuda/linear/wide_product.cuh"

namespace vernier::cuda {

template <class Product>
__global__ void __launch_bounds__(Product::kThreads, Product::kBlocks)
    wide_product_kernel(const __grid_constant__ ProductSource source) {
  extern __shared__ __align__(16) unsigned char memory[];
  release_successor();
  wait_for_predecessor();
  const ProductJob job =
      source.experts.top_k > 0
          ? expert_job(source.experts, Product::kRows, static_cast<int>(blockIdx.x), static_cast<int>(blockIdx.y))
          : linear_job(source.linear, {Product::kRows, Product::kColumns / source.linear.x.terms},
                       static_cast<int>(blockIdx.x), static_cast<int>(blockIdx.y));
  if (job.first_token < job.end_token) Product::run(job, *reinterpret_cast<typename Product::Shared*>(memory));
}

template <class Product>
cudaError_t launch_wide(const ProductSource& source, cudaStream_t stream) {
  const dim3 grid = product_grid(source, {Product::kRows, Product::kColumns / source.linear.x.terms});
  return launch_dependent(wide_product_kernel<Product>, grid, Product::kThreads, sizeof(typename Product::Shared),
                          stream, source);
}

/// Blocks of few columns where there is no work for all multiprocessors else; they decode each weight four times as
/// often.
template <Packing kPacking>
cudaError_t launch_wide_of(const ProductSource& source, cudaStream_t stream) {
  using Large = WideProduct<kPacking, kPacking == Packing::kF32 ? 1 : 2, 8>;  // two tiles of F32: too many registers
  using Small = WideProduct<kPacking, 1, 4>;
  static_assert(Small::kColumns == kSmallBlockColumns);
  return wants_small_blocks(source, {Large::kColumns, Small::kColumns}) ? launch_wide<Small>(source, stream)
                                                                        : launch_wide<Large>(source, stream);
}

}  // namespace vernier::cuda
