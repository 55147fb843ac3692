#include "backend/cuda/experts/expert_kernels.h"
#include "backend/cuda/experts/gate.cuh"
#include "backend/cuda/predecessor.cuh"

namespace vernier::cuda {
namespace {

constexpr int kWarp = 32;
constexpr int kGroupThreads = 1024;
constexpr int kThreads = 256;

/// The table: [0] groups, then expert [experts], first [experts + 1], uses [uses], counts [experts].
struct TableView {
  std::int32_t* count;
  std::int32_t* expert;
  std::int32_t* first;
  std::int32_t* uses;
  std::int32_t* uses_of;
};

__host__ __device__ TableView view_table(std::int32_t* table, std::int64_t uses, std::int64_t experts) {
  return {table, table + 1, table + 1 + experts, table + 2 + 2 * experts, table + 2 + 2 * experts + uses};
}

/// Places of a warp's lanes whose flag is set, counted from `base`, which moves on.
__device__ int next_place(bool flag, int& base) {
  const unsigned votes = __ballot_sync(0xFFFFFFFFU, flag);
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int place = base + __popc(votes & ((1U << lane) - 1U));
  base += __popc(votes);
  return place;
}

/// One block. A warp takes whole experts and looks at all ids, so that the order is fixed.
__global__ void __launch_bounds__(kGroupThreads)
    group_uses_kernel(const std::int32_t* ids, int uses, int experts, TableView table) {
  release_successor();
  wait_for_predecessor();
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  for (int e = warp; e < experts; e += kGroupThreads / kWarp) {
    int total = 0;
    for (int i = lane; i < uses; i += kWarp) total += ids[i] == e ? 1 : 0;
    total = __reduce_add_sync(0xFFFFFFFFU, total);
    if (lane == 0) table.uses_of[e] = total;
  }
  __syncthreads();
  if (warp == 0) {
    int groups = 0;
    int first = 0;
    for (int begin = 0; begin < experts; begin += kWarp) {
      const int e = begin + lane;
      const int own = e < experts ? table.uses_of[e] : 0;
      const int group = next_place(own > 0, groups);
      int sum = own;  // inclusive over the lanes
      for (int step = 1; step < kWarp; step *= 2) {
        const int other = __shfl_up_sync(0xFFFFFFFFU, sum, step);
        if (lane >= step) sum += other;
      }
      if (own > 0) {
        table.expert[group] = e;
        table.first[group] = first + sum - own;
      }
      first += __shfl_sync(0xFFFFFFFFU, sum, kWarp - 1);
    }
    if (lane == 0) {
      table.first[groups] = first;
      *table.count = groups;
    }
  }
  __syncthreads();
  for (int group = warp; group < *table.count; group += kGroupThreads / kWarp) {
    const int e = table.expert[group];
    int place = table.first[group];
    for (int begin = 0; begin < uses; begin += kWarp) {
      const int i = begin + lane;
      const bool mine = i < uses && ids[i] == e;
      const int at = next_place(mine, place);
      if (mine) table.uses[at] = i;
    }
  }
}

/// A block a row (a use's place) and kThreads columns.
__global__ void __launch_bounds__(kThreads) activate_kernel(const __grid_constant__ ActivateExperts args) {
  release_successor();
  wait_for_predecessor();
  const int place = static_cast<int>(blockIdx.x);
  const int col = static_cast<int>(blockIdx.y) * kThreads + static_cast<int>(threadIdx.x);
  if (col >= args.cols) return;
  const ExpertGroups& groups = args.groups;
  const bool is_used = groups.count != nullptr ? place < groups.first[*groups.count]
                                               : groups.expert[place] >= 0 && groups.expert[place] < args.experts;
  const std::int64_t i = std::int64_t{place} * args.cols + col;
  args.gate[i] = is_used ? gated(args.spec, args.gate[i], args.up[i]) : 0.0F;
}

__global__ void __launch_bounds__(kThreads) combine_kernel(const __grid_constant__ CombineExperts args) {
  const int col = static_cast<int>(blockIdx.x) * kThreads + static_cast<int>(threadIdx.x);
  const std::int64_t token = blockIdx.y;
  release_successor();
  wait_for_predecessor();
  if (col >= args.cols) return;
  float* y = args.y + token * args.y_stride + col;
  float sum = *y;
  for (int j = 0; j < args.top_k; ++j) {
    const std::int64_t use = token * args.top_k + j;
    if (args.ids[use] == -1) continue;  // computed elsewhere
    const bool known = args.ids[use] >= 0 && args.ids[use] < args.experts;
    const float result = known ? args.results[use * args.cols + col] : __int_as_float(0x7FC00000);
    sum = __fadd_rn(sum, __fmul_rn(args.weights[use], result));
  }
  *y = sum;
}

unsigned blocks(std::int64_t size) { return static_cast<unsigned>((size + kThreads - 1) / kThreads); }

}  // namespace

std::int64_t group_table_size(std::int64_t uses, std::int64_t experts) { return 2 + 3 * experts + uses; }

ExpertGroups group_table(const std::int32_t* table, std::int64_t uses, std::int64_t experts) {
  const TableView view = view_table(const_cast<std::int32_t*>(table), uses, experts);
  return {view.count, view.expert, view.first, view.uses};
}

cudaError_t group_uses(const std::int32_t* ids, std::int64_t uses, std::int64_t experts, std::int32_t* table,
                       cudaStream_t stream) {
  return launch_dependent(group_uses_kernel, dim3(1), kGroupThreads, 0, stream, ids, static_cast<int>(uses),
                          static_cast<int>(experts), view_table(table, uses, experts));
}

cudaError_t activate_experts(const ActivateExperts& args, cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>(args.places), blocks(args.cols));
  return launch_dependent(activate_kernel, grid, kThreads, 0, stream, args);
}

cudaError_t combine_experts(const CombineExperts& args, cudaStream_t stream) {
  const dim3 grid(blocks(args.cols), static_cast<unsigned>(args.tokens));
  return launch_dependent(combine_kernel, grid, kThreads, 0, stream, args);
}

}  // namespace vernier::cuda
