// The path that takes any weights: its launches.
#include "backend/cuda/linear/tile_product.cuh"

namespace vernier::cuda {
namespace {

/// Whose products a launch makes: a linear's or, where top_k isn't 0, experts'.
struct TileSource {
  LinearBatch linear;
  ExpertBatch experts;
};

template <int kTokens, int kTerms>
__global__ void __launch_bounds__(128) tile_product_kernel(const __grid_constant__ TileSource source) {
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
cudaError_t launch(const TileSource& source, cudaStream_t stream) {
  using Product = TileProduct<kTokens, kTerms>;
  constexpr auto kKernel = tile_product_kernel<kTokens, kTerms>;
  constexpr std::size_t kBytes = sizeof(typename Product::Shared);
  const auto tiles_of = [](int rows) { return static_cast<unsigned>((rows + Product::kRows - 1) / Product::kRows); };
  dim3 grid(0, 1);
  if (source.experts.top_k > 0) {
    grid.x = tiles_of(source.experts.rows) * static_cast<unsigned>(source.experts.num_matrices);
    grid.y = static_cast<unsigned>(source.experts.most_groups);
  } else {
    for (int i = 0; i < source.linear.count; ++i) grid.x += tiles_of(source.linear.matrix[i].weight.rows);
    grid.y = static_cast<unsigned>((source.linear.tokens + kTokens - 1) / kTokens);
  }
  const cudaError_t error =
      cudaFuncSetAttribute(kKernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(kBytes));
  if (error != cudaSuccess) return error;
  kKernel<<<grid, Product::kThreads, kBytes, stream>>>(source);
  return cudaGetLastError();
}

cudaError_t launch_for(const TileSource& source, int terms, cudaStream_t stream) {
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
