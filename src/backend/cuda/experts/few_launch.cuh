// Launches of FewProduct for one packing; the .cu files beside this compile one each.
#pragma once

#include <algorithm>

#include "backend/cuda/experts/few_kernels.h"
#include "backend/cuda/experts/few_product.cuh"
#include "backend/cuda/experts/single_down.cuh"
#include "backend/cuda/experts/single_gate_up.cuh"

namespace vernier::cuda {

constexpr unsigned kFewThreads = kFewWarps * 32;

template <Packing kPacking, int kGroups, bool kGated>
__global__ void __launch_bounds__(kFewThreads, 1)
    few_kernel(const __grid_constant__ ExpertBatch batch, const __grid_constant__ FewTask task,
               const __grid_constant__ FewPlan whole, const MatrixRef* next) {
  extern __shared__ __align__(128) unsigned char memory[];
  FewPlan plan = whole;
  const bool is_known = batch.groups.count == nullptr;
  if (is_known) plan.cut(batch.most_groups);
  if constexpr (kGated) {
    prefetch_table(batch.matrix[0], batch.experts);
    prefetch_table(batch.matrix[1], batch.experts);
    prefetch_table(next, batch.experts);
    // Which experts there are comes from the kernel in front, or one further; that of down may rely on it having ended.
    wait_for_predecessor();
  }
  release_successor();
  if (!is_known) plan.cut(__ldcg(batch.groups.count));
  const int partial_bytes = plan.most_slots * plan.segments * 2 * kGroups * 512;
  constexpr int kTotalBytes = kFewWarps * 2 * kGroups * 512;
  unsigned char* const totals = memory + kFewGroupsBytes;
  unsigned char* const partials = totals + kTotalBytes;
  const FewProduct<kPacking, kGroups, kGated> product = {batch,
                                                         task,
                                                         plan,
                                                         whole.begin_of,
                                                         reinterpret_cast<std::uint16_t*>(partials + partial_bytes),
                                                         reinterpret_cast<float4*>(partials),
                                                         reinterpret_cast<float4*>(totals),
                                                         *reinterpret_cast<FewGroups*>(memory),
                                                         plan.begin / plan.pairs};
  product.run_all(static_cast<int>(threadIdx.x) / 32, static_cast<int>(threadIdx.x) % 32);
}

inline FewPlan make_few_plan(const ExpertBatch& batch, Packing packing, int groups, int pair_rows) {
  FewPlan plan;
  plan.matrix = batch.matrix[0];
  plan.pairs = (batch.rows + pair_rows - 1) / pair_rows;
  plan.units = (batch.cols + kUnitCols - 1) / kUnitCols;
  const int step_units = few_step_units(packing);
  plan.steps = (plan.units + step_units - 1) / step_units;
  const int chunks = (plan.units + kChunkUnits - 1) / kChunkUnits;
  plan.segments = std::min(chunks, kSegments);
  for (int i = 0; i <= plan.segments; ++i) {
    plan.begin_of[i] = std::min(chunks * i / plan.segments * (kChunkUnits / step_units), plan.steps);
  }
  plan.part_of_segment = (0x10000 + plan.segments - 1) / plan.segments;
  plan.stride = plan.units * kUnitCols + kColumnPadding;
  plan.most_slots = groups == 1 ? kFewWarps : kFewWarps / 8;
  return plan;
}

template <Packing kPacking, int kGroups, bool kGated>
cudaError_t launch_few(const FewLaunch& launch, const GatedOutput& output) {
  const FewTask task = {output, launch.combine, launch.arrivals};
  const ExpertBatch& batch = launch.batch;
  FewPlan plan = make_few_plan(batch, kPacking, kGroups, kGated ? kTileRows : 2 * kTileRows);
  constexpr int kMostRows = 6 * 8 * kGroups;
  const int rows = batch.x.rounded == nullptr ? 1 : batch.groups.count == nullptr ? batch.most_groups : kMostRows;
  const std::size_t fixed_bytes =
      kFewGroupsBytes + static_cast<std::size_t>(kFewWarps + plan.most_slots * plan.segments) * 2 * kGroups * 512;
  const std::size_t row_bytes = static_cast<std::size_t>(plan.stride) * 2;
  plan.most_rows = std::min(rows, static_cast<int>((launch.shared_bytes - fixed_bytes) / row_bytes));
  const std::size_t bytes = fixed_bytes + static_cast<std::size_t>(plan.most_rows) * row_bytes;
  return launch_dependent(few_kernel<kPacking, kGroups, kGated>, dim3(launch.blocks), kFewThreads, bytes, launch.stream,
                          batch, task, plan, launch.next);
}

template <Packing kPacking>
cudaError_t few_gate_up_of(const FewLaunch& launch, const GatedOutput& output) {
  bool is_done = false;
  const cudaError_t error = launch_single_gate_up<kPacking>(launch, output, is_done);
  if (is_done) return error;
  return launch.columns > 8 ? launch_few<kPacking, 2, true>(launch, output)
                            : launch_few<kPacking, 1, true>(launch, output);
}
template <Packing kPacking>
cudaError_t few_down_of(const FewLaunch& launch) {
  bool is_done = false;
  const cudaError_t error = launch_single_down<kPacking>(launch, is_done);
  if (is_done) return error;
  return launch.columns > 8 ? launch_few<kPacking, 2, false>(launch, {}) : launch_few<kPacking, 1, false>(launch, {});
}

template <Packing kPacking>
constexpr FewKernels kFewKernels = {few_gate_up_of<kPacking>, few_down_of<kPacking>};

}  // namespace vernier::cuda
