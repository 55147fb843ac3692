// Launches of RingProduct for one packing; the .cu files beside this compile one or two each.
#pragma once

#include <algorithm>

#include "backend/cuda/linear/narrow_launch.cuh"
#include "backend/cuda/linear/narrow_ring.cuh"

namespace vernier::cuda {

template <class Product>
__global__ void __launch_bounds__(Product::kThreads, 2)
    narrow_ring_kernel(const __grid_constant__ LinearBatch batch, const __grid_constant__ RingOutput output,
                       const __grid_constant__ NarrowPlan plan) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ __align__(128) unsigned char memory[];
  release_successor();
  Product::run(LinearJobs{batch, plan}, output, memory);
#endif
}

template <class Product>
cudaError_t launch_ring(const LinearBatch& batch, cudaStream_t stream, const RingOutput& output = {}) {
  const int units = batch.matrix[0].weight.units;
  NarrowPlan plan;
  plan.tokens = batch.tokens;
  plan.columns = batch.tokens * batch.x.terms;
  plan.rows = kTileRows * Product::kRowTiles;
  plan.stride = staged_stride(Product::kPackedAs, units);
  for (int i = 0; i < (Product::kIsGated ? 1 : batch.count); ++i) add_jobs(plan, i, batch.matrix[i].weight.rows);
  NarrowLaunch launch = {0, static_cast<std::size_t>(typename Product::Memory(plan).size)};
  const cudaError_t error = fill_device<Product>(narrow_ring_kernel<Product>, plan.jobs, 1, launch);
  if (error != cudaSuccess) return error;
  return launch_dependent(narrow_ring_kernel<Product>, dim3(launch.blocks), Product::kThreads, launch.shared_bytes,
                          stream, batch, output, plan);
}

template <Packing kPacking>
cudaError_t ring_linear_of(const LinearBatch& batch, cudaStream_t stream) {
  using enum RingInput;
  if (is_staged(batch)) return launch_ring<RingProduct<kPacking, 1, 1, kOwn>>(batch, stream);
  if (batch.tokens * batch.x.terms > 8) return launch_ring<RingProduct<kPacking, 1, 2, kChunks>>(batch, stream);
  if constexpr (code_bits(kPacking) == 4) {  // two tiles share what they read of the input
    constexpr int kManyUnits = 128;
    if (has_many_tiles(batch) && batch.matrix[0].weight.units >= kManyUnits) {
      return launch_ring<RingProduct<kPacking, 2, 1, kChunks>>(batch, stream);
    }
  }
  return launch_ring<RingProduct<kPacking, 1, 1, kChunks>>(batch, stream);
}

template <Packing kPacking>
cudaError_t ring_gated_of(const LinearBatch& batch, const RingOutput& output, cudaStream_t stream) {
  using enum RingInput;
  if (is_staged(batch)) return launch_ring<RingProduct<kPacking, 2, 1, kOwn, true>>(batch, stream, output);
  return launch_ring<RingProduct<kPacking, 2, 1, kChunks, true>>(batch, stream, output);
}

template <Packing kPacking>
constexpr RingKernels kRingKernels = {ring_linear_of<kPacking>, ring_gated_of<kPacking>};
/// Two tiles of 16-bit weights at once would take all of a multiprocessor's shared memory.
template <Packing kPacking>
constexpr RingKernels kRingPlainKernels = {ring_linear_of<kPacking>, nullptr};

}  // namespace vernier::cuda
