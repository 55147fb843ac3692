// Launches of NarrowProduct for one packing; the .cu files beside this compile one or two each.
#pragma once

#include <algorithm>

#include "backend/cuda/linear/narrow_kernels.h"
#include "backend/cuda/linear/narrow_product.cuh"

namespace vernier::cuda {

template <class Product>
__global__ void __launch_bounds__(Product::kMostThreads)
    narrow_linear_kernel(const __grid_constant__ LinearBatch batch, const __grid_constant__ GatedOutput gated_output,
                         const __grid_constant__ NarrowPlan plan) {
  extern __shared__ __align__(128) unsigned char memory[];
  release_successor();
  Product::run(LinearJobs{batch, plan}, gated_output, memory);
}

/// Which experts there are is known only when the kernel in front has ended.
template <class Product>
__global__ void __launch_bounds__(Product::kMostThreads)
    narrow_expert_kernel(const __grid_constant__ ExpertBatch batch, const __grid_constant__ GatedOutput gated_output,
                         const __grid_constant__ NarrowPlan plan) {
  extern __shared__ __align__(128) unsigned char memory[];
  release_successor();
  wait_for_predecessor();
  const int groups = batch.groups.count != nullptr ? *batch.groups.count : batch.most_groups;
  Product::run(ExpertJobs{batch, plan, groups}, gated_output, memory);
}

/// A kernel's launch: its blocks and their memory.
struct NarrowLaunch {
  unsigned blocks = 0;
  std::size_t shared_bytes = 0;
};

/// Blocks for `jobs` jobs: as many as fit on the device at once, the same number on each multiprocessor, so that these
/// differ by one job at most.
template <class Product, class Kernel>
cudaError_t fill_device(Kernel kernel, int jobs, int rows_of_blocks, NarrowLaunch& launch) {
  int device = 0;
  int multiprocessors = 0;
  int per_multiprocessor = 0;
  cudaError_t error = cudaGetDevice(&device);
  if (error == cudaSuccess) {
    error = cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device);
  }
  if (error == cudaSuccess) {
    error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                 static_cast<int>(launch.shared_bytes));
  }
  if (error == cudaSuccess) {
    error = cudaOccupancyMaxActiveBlocksPerMultiprocessor(&per_multiprocessor, kernel, Product::kThreads,
                                                          launch.shared_bytes);
  }
  if (error != cudaSuccess) return error;
  const int room = std::max(1, multiprocessors * std::max(per_multiprocessor, 1) / rows_of_blocks);
  launch.blocks = static_cast<unsigned>(std::min(jobs, room));
  return cudaSuccess;
}

/// A plan without its jobs.
template <class Product>
NarrowPlan make_plan(const InputView& x, int units, int tokens) {
  NarrowPlan plan;
  plan.tokens = std::min(Product::kColumns / x.terms, tokens);
  plan.columns = plan.tokens * x.terms;
  plan.rows = kTileRows * Product::kRowTiles * Product::deal(units).copies();
  plan.stride = staged_stride(Product::kPackedAs, units);
  return plan;
}
inline void add_jobs(NarrowPlan& plan, int matrix, int rows) {
  plan.first_job[matrix] = plan.jobs;
  plan.jobs += (rows + plan.rows - 1) / plan.rows;
  plan.num_matrices = matrix + 1;
}

template <class Product>
cudaError_t launch_narrow_linear(const LinearBatch& batch, cudaStream_t stream, const GatedOutput& gated_output = {}) {
  const int units = batch.matrix[0].weight.units;
  NarrowPlan plan = make_plan<Product>(batch.x, units, batch.tokens);
  for (int i = 0; i < (Product::kIsGated ? 1 : batch.count); ++i) add_jobs(plan, i, batch.matrix[i].weight.rows);
  const int rows_of_blocks = (batch.tokens + plan.tokens - 1) / plan.tokens;
  NarrowLaunch launch = {0, static_cast<std::size_t>(typename Product::Memory(plan).size)};
  const cudaError_t error = fill_device<Product>(narrow_linear_kernel<Product>, plan.jobs, rows_of_blocks, launch);
  if (error != cudaSuccess) return error;
  return launch_dependent(narrow_linear_kernel<Product>, dim3(launch.blocks, static_cast<unsigned>(rows_of_blocks)),
                          Product::kThreads, launch.shared_bytes, stream, batch, gated_output, plan);
}

template <class Product>
cudaError_t launch_narrow_experts(const ExpertBatch& batch, const GatedOutput& gated_output, cudaStream_t stream) {
  const int units = (batch.cols + kUnitCols - 1) / kUnitCols;
  NarrowPlan plan = make_plan<Product>(batch.x, units, batch.most_tokens);
  for (int i = 0; i < batch.num_matrices; ++i) add_jobs(plan, i, batch.rows);
  NarrowLaunch launch = {0, static_cast<std::size_t>(typename Product::Memory(plan).size)};
  const cudaError_t error =
      fill_device<Product>(narrow_expert_kernel<Product>, batch.most_groups * plan.jobs, 1, launch);
  if (error != cudaSuccess) return error;
  return launch_dependent(narrow_expert_kernel<Product>, dim3(launch.blocks), Product::kThreads, launch.shared_bytes,
                          stream, batch, gated_output, plan);
}

template <Packing kPacking, InputPlace kInput>
cudaError_t launch_eight_columns(const LinearBatch& batch, cudaStream_t stream) {
  // With 4-bit weights and input from global memory two row tiles at a time were 7 to 11 % slower.
  constexpr bool kMayTakeTwo = kInput == InputPlace::kShared || code_bits(kPacking) == 8;
  if constexpr (!has_groups(kPacking) && code_bits(kPacking) < 16 && kMayTakeTwo) {
    if (has_many_tiles(batch)) return launch_narrow_linear<NarrowProduct<kPacking, 2, 1, kInput>>(batch, stream);
  }
  return launch_narrow_linear<NarrowProduct<kPacking, 1, 1, kInput>>(batch, stream);
}

/// Columns of B that a launch has for each token's terms, from the fewest that do.
template <Packing kPacking>
cudaError_t narrow_linear_of(const LinearBatch& batch, cudaStream_t stream) {
  using enum InputPlace;
  const int columns = batch.tokens * batch.x.terms;
  if (is_staged(batch)) return launch_eight_columns<kPacking, kShared>(batch, stream);
  if (columns <= 8) return launch_eight_columns<kPacking, kGlobal>(batch, stream);
  if constexpr (!has_groups(kPacking)) {
    if (columns <= 16) return launch_narrow_linear<NarrowProduct<kPacking, 1, 2, kGlobal>>(batch, stream);
  }
  return launch_narrow_linear<NarrowProduct<kPacking, 1, 4, kGlobal>>(batch, stream);
}

/// At most 8 columns.
template <Packing kPacking>
cudaError_t narrow_gated_of(const LinearBatch& batch, const GatedOutput& gated_output, cudaStream_t stream) {
  using enum InputPlace;
  if (is_staged(batch)) {
    return launch_narrow_linear<NarrowProduct<kPacking, 2, 1, kShared, true>>(batch, stream, gated_output);
  }
  return launch_narrow_linear<NarrowProduct<kPacking, 2, 1, kGlobal, true>>(batch, stream, gated_output);
}

/// Whether experts have so many tokens on average that one run of 8 columns would not do for most.
inline bool is_crowded(const ExpertBatch& batch) {
  return batch.most_tokens * batch.top_k * batch.x.terms > 6 * batch.experts;
}

template <Packing kPacking>
cudaError_t narrow_gate_up_of(const ExpertBatch& batch, const GatedOutput& gated_output, cudaStream_t stream) {
  using enum InputPlace;
  if (batch.x.rounded == nullptr) {  // one token
    return launch_narrow_experts<NarrowProduct<kPacking, 2, 1, kShared, true>>(batch, gated_output, stream);
  }
  if (is_crowded(batch)) {
    return launch_narrow_experts<NarrowProduct<kPacking, 2, 4, kGlobal, true>>(batch, gated_output, stream);
  }
  return launch_narrow_experts<NarrowProduct<kPacking, 2, 1, kGlobal, true>>(batch, gated_output, stream);
}

template <Packing kPacking>
cudaError_t narrow_experts_of(const ExpertBatch& batch, cudaStream_t stream) {
  using enum InputPlace;
  if (batch.x.rounded == nullptr) {
    return launch_narrow_experts<NarrowProduct<kPacking, 1, 1, kShared>>(batch, {}, stream);
  }
  if (is_crowded(batch)) return launch_narrow_experts<NarrowProduct<kPacking, 1, 4, kGlobal>>(batch, {}, stream);
  return launch_narrow_experts<NarrowProduct<kPacking, 1, 1, kGlobal>>(batch, {}, stream);
}

template <Packing kPacking>
constexpr NarrowKernels kNarrowKernels = {narrow_linear_of<kPacking>, narrow_gated_of<kPacking>,
                                          narrow_gate_up_of<kPacking>, narrow_experts_of<kPacking>};
/// Without the kernel for dense gate and up together: with two tiles of 16-bit weights at once it spills registers.
template <Packing kPacking>
constexpr NarrowKernels kNarrowPlainKernels = {narrow_linear_of<kPacking>, nullptr, narrow_gate_up_of<kPacking>,
                                               narrow_experts_of<kPacking>};
/// Without the kernels for gate and up together.
template <Packing kPacking>
constexpr NarrowKernels kNarrowGroupKernels = {narrow_linear_of<kPacking>, nullptr, nullptr,
                                               narrow_experts_of<kPacking>};

}  // namespace vernier::cuda
