// Launches of FewProduct for one packing; the .cu files beside this compile one each.
#pragma once

#include <algorithm>

#include "backend/cuda/experts/few_kernels.h"
#include "backend/cuda/experts/few_product.cuh"

namespace vernier::cuda {

constexpr unsigned kFewThreads = kFewWarps * 32;

template <Packing kPacking, int kGroups, bool kGated>
__global__ void __launch_bounds__(kFewThreads, 1)
    few_kernel(const __grid_constant__ ExpertBatch batch, const __grid_constant__ FewTask task,
               const __grid_constant__ FewPlan whole, const __grid_constant__ FewPlan next_whole) {
  extern __shared__ __align__(128) unsigned char memory[];
  if constexpr (kGated) {
    // Which experts there are comes from the kernel in front, or one further; that of down may rely on it having ended.
    prefetch_table(batch.matrix[0], batch.experts);
    prefetch_table(batch.matrix[1], batch.experts);
    prefetch_table(next_whole.matrix, batch.experts);
    wait_for_predecessor();
  }
  release_successor();
  const int groups = batch.groups.count != nullptr ? __ldcg(batch.groups.count) : batch.most_groups;
  FewPlan plan = whole;
  plan.cut(groups);
  FewPlan next = next_whole;
  if constexpr (kGated) next.cut(groups);
  const int partial_bytes = plan.most_slots * plan.segments * 2 * kGroups * 512;
  const auto* staged = reinterpret_cast<const std::uint16_t*>(memory + partial_bytes);
  const FewProduct<kPacking, kGroups, kGated> product = {
      batch, task, plan, batch.x.rounded == nullptr ? staged : nullptr, reinterpret_cast<float4*>(memory)};
  product.run_all(next, static_cast<int>(threadIdx.x) / 32, static_cast<int>(threadIdx.x) % 32);
}

inline FewPlan make_few_plan(const ExpertBatch& batch, int groups, int pair_rows) {
  FewPlan plan;
  plan.matrix = batch.matrix[0];
  plan.pairs = (batch.rows + pair_rows - 1) / pair_rows;
  plan.units = (batch.cols + kUnitCols - 1) / kUnitCols;
  plan.chunks = (plan.units + kChunkUnits - 1) / kChunkUnits;
  plan.segments = std::min(plan.chunks, kSegments);
  plan.most_slots = kFewWarps / groups;
  return plan;
}

template <Packing kPacking, int kGroups, bool kGated>
cudaError_t launch_few(const FewLaunch& launch, const GatedOutput& output) {
  const FewTask task = {output, launch.combine, launch.arrivals};
  const ExpertBatch& batch = launch.batch;
  const FewPlan plan = make_few_plan(batch, kGroups, kGated ? kTileRows : 2 * kTileRows);
  FewPlan next;
  if (launch.next != nullptr) next = make_few_plan(*launch.next, kGroups, 2 * kTileRows);
  std::size_t bytes = static_cast<std::size_t>(plan.most_slots * plan.segments) * 2 * kGroups * 512;
  if (batch.x.rounded == nullptr) bytes += static_cast<std::size_t>(plan.units) * kUnitCols * 2;
  return launch_dependent(few_kernel<kPacking, kGroups, kGated>, dim3(launch.blocks), kFewThreads, bytes, launch.stream,
                          batch, task, plan, next);
}

template <Packing kPacking>
cudaError_t few_gate_up_of(const FewLaunch& launch, const GatedOutput& output) {
  return launch.columns > 8 ? launch_few<kPacking, 2, true>(launch, output)
                            : launch_few<kPacking, 1, true>(launch, output);
}
template <Packing kPacking>
cudaError_t few_down_of(const FewLaunch& launch) {
  return launch.columns > 8 ? launch_few<kPacking, 2, false>(launch, {}) : launch_few<kPacking, 1, false>(launch, {});
}

template <Packing kPacking>
constexpr FewKernels kFewKernels = {few_gate_up_of<kPacking>, few_down_of<kPacking>};

}  // namespace vernier::cuda
