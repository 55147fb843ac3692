// Launches of NarrowProduct for one packing; the .cu files beside this compile one or two each.
#pragma once

#include <algorithm>

#include "backend/cuda/linear/narrow_kernels.h"
#include "backend/cuda/linear/narrow_product.cuh"

namespace vernier::cuda {

template <class Product>
__global__ void __launch_bounds__(Product::kThreads, Product::kBlocksAtOnce)
    narrow_linear_kernel(const __grid_constant__ LinearBatch batch) {
  extern __shared__ __align__(16) unsigned char memory[];
  release_successor();
  const ProductJob job = linear_job(batch, kTileRows * Product::kRowTiles, Product::kColumns / batch.x.terms);
  Product::run(job, {}, memory);
}

/// Which experts there are is known only when the kernel in front has ended.
template <class Product>
__global__ void __launch_bounds__(Product::kThreads, Product::kBlocksAtOnce)
    narrow_expert_kernel(const __grid_constant__ ExpertBatch batch, const __grid_constant__ GatedOutput gated_output) {
  extern __shared__ __align__(16) unsigned char memory[];
  release_successor();
  wait_for_predecessor();
  const ProductJob job = expert_job(batch, kTileRows * Product::kRowTiles);
  if (job.first_token < job.end_token) Product::run(job, gated_output, memory);
}

template <class Product>
std::size_t narrow_shared_bytes(const InputView& x, int cols, int tokens) {
  const std::size_t partials = sizeof(typename Product::Partials);
  if (x.rounded != nullptr) return partials;
  const int columns = std::min(Product::kColumns / x.terms, tokens) * x.terms;
  const int stride = (cols + kUnitCols - 1) / kUnitCols * kUnitCols + Product::kPadding;
  return std::max(partials, static_cast<std::size_t>(columns) * static_cast<std::size_t>(stride) * 2);
}

template <class Product>
cudaError_t launch_narrow_linear(const LinearBatch& batch, cudaStream_t stream) {
  constexpr int kRows = kTileRows * Product::kRowTiles;
  const int tokens_a_block = Product::kColumns / batch.x.terms;
  dim3 grid(0, static_cast<unsigned>((batch.tokens + tokens_a_block - 1) / tokens_a_block));
  for (int i = 0; i < batch.count; ++i) {
    grid.x += static_cast<unsigned>((batch.matrix[i].weight.rows + kRows - 1) / kRows);
  }
  return launch_dependent(narrow_linear_kernel<Product>, grid, Product::kThreads,
                          narrow_shared_bytes<Product>(batch.x, batch.matrix[0].weight.cols, batch.tokens), stream,
                          batch);
}

template <class Product>
cudaError_t launch_narrow_experts(const ExpertBatch& batch, const GatedOutput& gated_output, cudaStream_t stream) {
  constexpr int kRows = kTileRows * Product::kRowTiles;
  dim3 grid(static_cast<unsigned>((batch.rows + kRows - 1) / kRows * batch.num_matrices),
            static_cast<unsigned>(batch.most_groups));
  return launch_dependent(narrow_expert_kernel<Product>, grid, Product::kThreads,
                          narrow_shared_bytes<Product>(batch.x, batch.cols, batch.most_tokens), stream, batch,
                          gated_output);
}

constexpr int kManyTiles = 448;

/// Columns of B that a launch has for each token's terms, from the fewest that do.
template <Packing kPacking>
cudaError_t narrow_linear_of(const LinearBatch& batch, cudaStream_t stream) {
  const int columns = batch.tokens * batch.x.terms;
  if constexpr (!has_groups(kPacking) && kPacking != Packing::kBF16) {
    // Two row tiles share what they read of the input, as soon as there are blocks enough.
    int tiles = 0;
    for (int i = 0; i < batch.count; ++i) tiles += batch.matrix[i].weight.rows / kTileRows;
    if (columns <= 8 && tiles >= kManyTiles) {
      return launch_narrow_linear<NarrowProduct<kPacking, 2, 1, false>>(batch, stream);
    }
  }
  if (columns <= 8) return launch_narrow_linear<NarrowProduct<kPacking, 1, 1, false>>(batch, stream);
  if constexpr (!has_groups(kPacking)) {
    if (columns <= 16) return launch_narrow_linear<NarrowProduct<kPacking, 1, 2, false>>(batch, stream);
  }
  return launch_narrow_linear<NarrowProduct<kPacking, 1, 4, false>>(batch, stream);
}

/// Whether experts have so many tokens on average that one run of 8 columns would not do for most.
inline bool is_crowded(const ExpertBatch& batch) {
  return batch.most_tokens * batch.top_k * batch.x.terms > 6 * batch.experts;
}

template <Packing kPacking>
cudaError_t narrow_gate_up_of(const ExpertBatch& batch, const GatedOutput& gated_output, cudaStream_t stream) {
  if (is_crowded(batch)) return launch_narrow_experts<NarrowProduct<kPacking, 2, 4, true>>(batch, gated_output, stream);
  return launch_narrow_experts<NarrowProduct<kPacking, 2, 1, true>>(batch, gated_output, stream);
}

template <Packing kPacking>
cudaError_t narrow_experts_of(const ExpertBatch& batch, cudaStream_t stream) {
  if (is_crowded(batch)) return launch_narrow_experts<NarrowProduct<kPacking, 1, 4, false>>(batch, {}, stream);
  return launch_narrow_experts<NarrowProduct<kPacking, 1, 1, false>>(batch, {}, stream);
}

template <Packing kPacking>
constexpr NarrowKernels kNarrowKernels = {narrow_linear_of<kPacking>, narrow_gate_up_of<kPacking>,
                                          narrow_experts_of<kPacking>};
/// Without the kernel for gate and up together.
template <Packing kPacking>
constexpr NarrowKernels kNarrowGroupKernels = {narrow_linear_of<kPacking>, nullptr, narrow_experts_of<kPacking>};

}  // namespace vernier::cuda
