#include <type_traits>

#include "backend/cuda/linear/wide.h"
#include "backend/cuda/linear/wide_product.cuh"

namespace vernier::cuda {
namespace {

/// Whose products a launch makes: a linear's or, where top_k isn't 0, experts'.
struct WideSource {
  LinearBatch linear;
  ExpertBatch experts;
};

template <class Product>
__global__ void __launch_bounds__(Product::kThreads, 1) wide_product_kernel(const __grid_constant__ WideSource source) {
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

/// Calls function(std::type_identity<Product>{}) with the kernel of a packing.
template <class Function>
auto visit_product(Packing packing, Function function) {
  switch (packing) {
    case Packing::kE2M1ByE4M3: return function(std::type_identity<WideProduct<Packing::kE2M1ByE4M3, 8>>{});
    case Packing::kE2M1ByE8M0: return function(std::type_identity<WideProduct<Packing::kE2M1ByE8M0, 8>>{});
    case Packing::kE4M3: return function(std::type_identity<WideProduct<Packing::kE4M3, 8>>{});
    case Packing::kE4M3ByGrid: return function(std::type_identity<WideProduct<Packing::kE4M3ByGrid, 4>>{});
    default: return function(std::type_identity<WideProduct<Packing::kBF16, 8>>{});
  }
}

cudaError_t launch(Packing packing, const WideSource& source, cudaStream_t stream) {
  return visit_product(packing, [&]<class Product>(std::type_identity<Product>) {
    const auto tiles_of = [](int rows) { return static_cast<unsigned>((rows + Product::kRows - 1) / Product::kRows); };
    dim3 grid(0, 1);
    if (source.experts.top_k > 0) {
      grid.x = tiles_of(source.experts.rows) * static_cast<unsigned>(source.experts.num_matrices);
      grid.y = static_cast<unsigned>(source.experts.most_groups);
    } else {
      const int tokens_a_block = Product::kColumns / source.linear.x.terms;
      for (int i = 0; i < source.linear.count; ++i) grid.x += tiles_of(source.linear.matrix[i].weight.rows);
      grid.y = static_cast<unsigned>((source.linear.tokens + tokens_a_block - 1) / tokens_a_block);
    }
    return launch_dependent(wide_product_kernel<Product>, grid, Product::kThreads, sizeof(typename Product::Shared),
                            stream, source);
  });
}

}  // namespace

std::size_t wide_shared_bytes(Packing packing) {
  return visit_product(packing,
                       []<class Product>(std::type_identity<Product>) { return sizeof(typename Product::Shared); });
}

cudaError_t wide_linear(Packing packing, const LinearBatch& batch, cudaStream_t stream) {
  return launch(packing, {batch, {}}, stream);
}

cudaError_t wide_experts(Packing packing, const ExpertBatch& batch, cudaStream_t stream) {
  return launch(packing, {{}, batch}, stream);
}

}  // namespace vernier::cuda
