// Launches of NarrowProduct for one packing; the .cu files beside this compile one or two each.
#pragma once

#include <algorithm>

#include "backend/cuda/linear/narrow_kernels.h"
#include "backend/cuda/linear/narrow_product.cuh"

namespace vernier::cuda {

/// Row tiles of a linear's outputs, for one tile of tokens.
template <class Product>
struct LinearJobs {
  const LinearBatch& batch;
  int count;
  int rows;  ///< of a tile
  [[nodiscard]] __device__ ProductJob job(int number) const {
    const TileSize size = {rows, Product::kColumns / batch.x.terms};
    return linear_job(batch, size, number, static_cast<int>(blockIdx.y));
  }
};

/// Row tiles of the used experts.
struct ExpertJobs {
  const ExpertBatch& batch;
  int count;
  int rows;   ///< of a tile
  int tiles;  ///< of an expert
  [[nodiscard]] __device__ ProductJob job(int number) const {
    return expert_job(batch, rows, number % tiles, number / tiles);
  }
};

template <class Product>
__global__ void __launch_bounds__(Product::kThreads, Product::kBlocksAtOnce)
    narrow_linear_kernel(const __grid_constant__ LinearBatch batch, int count, int rows) {
  extern __shared__ __align__(16) unsigned char memory[];
  release_successor();
  Product::run(LinearJobs<Product>{batch, count, rows}, {}, memory);
}

/// Which experts there are is known only when the kernel in front has ended.
template <class Product>
__global__ void __launch_bounds__(Product::kThreads, Product::kBlocksAtOnce)
    narrow_expert_kernel(const __grid_constant__ ExpertBatch batch, const __grid_constant__ GatedOutput gated_output,
                         int tiles, int rows) {
  extern __shared__ __align__(16) unsigned char memory[];
  release_successor();
  wait_for_predecessor();
  const int groups = batch.groups.count != nullptr ? *batch.groups.count : batch.most_groups;
  Product::run(ExpertJobs{batch, groups * tiles, rows, tiles}, gated_output, memory);
}

template <class Product>
std::size_t narrow_shared_bytes(const InputView& x, int cols, int tokens) {
  const std::size_t partials = 2 * sizeof(typename Product::Partials);
  if (x.rounded != nullptr) return partials;
  const int columns = std::min(Product::kColumns / x.terms, tokens) * x.terms;
  const int stride = (cols + kUnitCols - 1) / kUnitCols * kUnitCols + Product::kPadding;
  return partials + static_cast<std::size_t>(columns) * static_cast<std::size_t>(stride) * 2;
}

/// Blocks for `jobs` jobs: as many as fit on the device at once, but no more than share them evenly.
template <class Kernel>
cudaError_t even_blocks(Kernel kernel, unsigned threads, std::size_t shared_bytes, int jobs, int rows_of_blocks,
                        unsigned& blocks) {
  int device = 0;
  int multiprocessors = 0;
  int per_multiprocessor = 0;
  cudaError_t error = cudaGetDevice(&device);
  if (error == cudaSuccess) {
    error = cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device);
  }
  if (error == cudaSuccess) {
    error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared_bytes));
  }
  if (error == cudaSuccess) {
    error = cudaOccupancyMaxActiveBlocksPerMultiprocessor(&per_multiprocessor, kernel, static_cast<int>(threads),
                                                          shared_bytes);
  }
  if (error != cudaSuccess) return error;
  const int room = std::max(1, multiprocessors * std::max(per_multiprocessor, 1) / rows_of_blocks);
  const int turns = (jobs + room - 1) / room;
  blocks = static_cast<unsigned>((jobs + turns - 1) / turns);
  return cudaSuccess;
}

template <class Product>
cudaError_t launch_narrow_linear(const LinearBatch& batch, cudaStream_t stream) {
  const int rows = kTileRows * Product::kRowTiles * Product::deal(batch.matrix[0].weight.units).copies;
  const int tokens_a_block = Product::kColumns / batch.x.terms;
  int jobs = 0;
  for (int i = 0; i < batch.count; ++i) jobs += (batch.matrix[i].weight.rows + rows - 1) / rows;
  dim3 grid(0, static_cast<unsigned>((batch.tokens + tokens_a_block - 1) / tokens_a_block));
  const std::size_t bytes = narrow_shared_bytes<Product>(batch.x, batch.matrix[0].weight.cols, batch.tokens);
  const cudaError_t error =
      even_blocks(narrow_linear_kernel<Product>, Product::kThreads, bytes, jobs, static_cast<int>(grid.y), grid.x);
  if (error != cudaSuccess) return error;
  return launch_dependent(narrow_linear_kernel<Product>, grid, Product::kThreads, bytes, stream, batch, jobs, rows);
}

template <class Product>
cudaError_t launch_narrow_experts(const ExpertBatch& batch, const GatedOutput& gated_output, cudaStream_t stream) {
  const int units = (batch.cols + kUnitCols - 1) / kUnitCols;
  const int rows = kTileRows * Product::kRowTiles * Product::deal(units).copies;
  const int tiles = (batch.rows + rows - 1) / rows * batch.num_matrices;
  const std::size_t bytes = narrow_shared_bytes<Product>(batch.x, batch.cols, batch.most_tokens);
  dim3 grid(0);
  const cudaError_t error =
      even_blocks(narrow_expert_kernel<Product>, Product::kThreads, bytes, batch.most_groups * tiles, 1, grid.x);
  if (error != cudaSuccess) return error;
  return launch_dependent(narrow_expert_kernel<Product>, grid, Product::kThreads, bytes, stream, batch, gated_output,
                          tiles, rows);
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
