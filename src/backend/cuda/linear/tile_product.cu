// The path that takes any weights: its launches.
#include "backend/cuda/linear/tile_product.cuh"

namespace vernier::cuda {
namespace {

template <int kTokens, int kTerms>
__global__ void __launch_bounds__(128) tile_product_kernel(const __grid_constant__ ProductSource source) {
  using Product = TileProduct<kTokens, kTerms>;
  extern __shared__ __align__(16) unsigned char memory[];
  const ProductJob job =
      source.experts.top_k > 0
          ? expert_job(source.experts, Product::kRows, static_cast<int>(blockIdx.x), static_cast<int>(blockIdx.y))
          : linear_job(source.linear, {Product::kRows, kTokens}, static_cast<int>(blockIdx.x),
                       static_cast<int>(blockIdx.y));
  if (job.first_token < job.end_token) Product::run(job, *reinterpret_cast<typename Product::Shared*>(memory));
}

template <int kTokens, int kTerms>
cudaError_t launch(const ProductSource& source, cudaStream_t stream) {
  using Product = TileProduct<kTokens, kTerms>;
  constexpr auto kKernel = tile_product_kernel<kTokens, kTerms>;
  constexpr std::size_t kBytes = sizeof(typename Product::Shared);
  const dim3 grid = product_grid(source, {Product::kRows, kTokens});
  const cudaError_t error =
      cudaFuncSetAttribute(kKernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(kBytes));
  if (error != cudaSuccess) return error;
  kKernel<<<grid, Product::kThreads, kBytes, stream>>>(source);
  return cudaGetLastError();
}

cudaError_t launch_for(const ProductSource& source, int terms, cudaStream_t stream) {
  return terms == 3 ? launch<16, 3>(source, stream) : launch<32, 1>(source, stream);
}

}  // namespace

cudaError_t tile_linear(const LinearBatch& batch, cudaStream_t stream) {
  return launch_for({batch, {}}, batch.x.terms, stream);
}

cudaError_t tile_experts(const ExpertBatch& batch, cudaStream_t stream) {
  return launch_for({{}, batch}, batch.x.terms, stream);
}

}  // namespace vernier::cuda
