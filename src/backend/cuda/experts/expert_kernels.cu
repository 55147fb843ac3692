#include <algorithm>

#include "backend/cuda/experts/expert_kernels.h"
#include "backend/cuda/experts/gate.cuh"
#include "backend/cuda/predecessor.cuh"

namespace vernier::cuda {
namespace {

constexpr int kWarp = 32;
constexpr int kGroupThreads = 1024;
constexpr int kThreads = 256;

/// The table: [0] groups, then expert [experts], first [experts + 1], uses [uses].
struct TableView {
  std::int32_t* count;
  std::int32_t* expert;
  std::int32_t* first;
  std::int32_t* uses;
};

__host__ __device__ TableView view_table(std::int32_t* table, std::int64_t experts) {
  return {table, table + 1, table + 1 + experts, table + 2 + 2 * experts};
}

/// The ids at `i` of a warp's lanes, -1 for none or one outside the experts, and the lanes that have the same.
struct WarpIds {
  int id;
  unsigned same;
};
__device__ WarpIds load_ids(const std::int32_t* ids, int i, int end, int experts) {
  const int id = i < end ? ids[i] : -1;
  const int known = id >= 0 && id < experts ? id : -1;
  return {known, __match_any_sync(0xFFFFFFFFU, known)};
}

/// Places of an expert's uses: turns the counts of the warps, [warps][experts], into where each begins. One warp; the
/// groups too.
__device__ void place_groups(int warps, int experts, const TableView& table, std::int32_t* counts) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  int groups = 0;
  int first = 0;
  for (int begin = 0; begin < experts; begin += kWarp) {
    const int e = begin + lane;
    int own = 0;
    for (int w = 0; w < warps && e < experts; ++w) own += counts[w * experts + e];
    int sum = own;  // inclusive over the lanes
    for (int step = 1; step < kWarp; step *= 2) {
      const int other = __shfl_up_sync(0xFFFFFFFFU, sum, step);
      if (lane >= step) sum += other;
    }
    int place = first + sum - own;
    const unsigned votes = __ballot_sync(0xFFFFFFFFU, own > 0);
    if (own > 0) {
      const int group = groups + __popc(votes & ((1U << lane) - 1U));
      table.expert[group] = e;
      table.first[group] = place;
    }
    for (int w = 0; w < warps && e < experts; ++w) {
      const int count = counts[w * experts + e];
      counts[w * experts + e] = place;
      place += count;
    }
    groups += __popc(votes);
    first += __shfl_sync(0xFFFFFFFFU, sum, kWarp - 1);
  }
  if (lane == 0) {
    table.first[groups] = first;
    *table.count = groups;
  }
}

/// One block. Each warp counts and places a part of the uses, in their order.
__global__ void __launch_bounds__(kGroupThreads)
    group_uses_kernel(const std::int32_t* ids, int uses, int experts, TableView table) {
  extern __shared__ std::int32_t counts[];  // [warps][experts]
  release_successor();
  wait_for_predecessor();
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int warps = static_cast<int>(blockDim.x) / kWarp;
  const int share = (uses + warps * kWarp - 1) / (warps * kWarp) * kWarp;
  const int begin = min(warp * share, uses);
  const int end = min(begin + share, uses);
  std::int32_t* const own = counts + warp * experts;
  for (int e = lane; e < experts; e += kWarp) own[e] = 0;
  __syncwarp();
  for (int i = begin; i < end; i += kWarp) {
    const WarpIds at = load_ids(ids, i + lane, end, experts);
    if (at.id >= 0 && lane == __ffs(static_cast<int>(at.same)) - 1) own[at.id] += __popc(at.same);
    __syncwarp();
  }
  __syncthreads();
  if (warp == 0) place_groups(warps, experts, table, counts);
  __syncthreads();
  for (int i = begin; i < end; i += kWarp) {
    const WarpIds at = load_ids(ids, i + lane, end, experts);
    const int place = at.id >= 0 ? own[at.id] + __popc(at.same & ((1U << lane) - 1U)) : 0;
    __syncwarp();
    if (at.id >= 0) {
      table.uses[place] = i + lane;
      if (lane == __ffs(static_cast<int>(at.same)) - 1) own[at.id] += __popc(at.same);
    }
    __syncwarp();
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
  constexpr int kAtOnce = 8;  // on their way together
  const int col = static_cast<int>(blockIdx.x) * kThreads + static_cast<int>(threadIdx.x);
  const std::int64_t token = blockIdx.y;
  release_successor();
  wait_for_predecessor();
  if (col >= args.cols) return;
  float* y = args.y + token * args.y_stride + col;
  float sum = *y;
#pragma unroll 1
  for (int first = 0; first < args.top_k; first += kAtOnce) {
    int id[kAtOnce];
    float weight[kAtOnce];
    float result[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const std::int64_t use = token * args.top_k + min(first + i, args.top_k - 1);
      id[i] = args.ids[use];
      weight[i] = args.weights[use];
      result[i] = args.results[use * args.cols + col];
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      if (first + i >= args.top_k || id[i] == -1) continue;  // -1: computed elsewhere
      const bool known = id[i] >= 0 && id[i] < args.experts;
      sum = __fadd_rn(sum, __fmul_rn(weight[i], known ? result[i] : __int_as_float(0x7FC00000)));
    }
  }
  *y = sum;
}

unsigned blocks(std::int64_t size) { return static_cast<unsigned>((size + kThreads - 1) / kThreads); }

}  // namespace

std::int64_t group_table_size(std::int64_t uses, std::int64_t experts) { return 2 + 2 * experts + uses; }

ExpertGroups group_table(const std::int32_t* table, std::int64_t experts) {
  const TableView view = view_table(const_cast<std::int32_t*>(table), experts);
  return {view.count, view.expert, view.first, view.uses};
}

cudaError_t group_uses(const std::int32_t* ids, std::int64_t uses, std::int64_t experts, std::int32_t* table,
                       cudaStream_t stream) {
  constexpr std::int64_t kMostCounts = 48 * 1024 / 4;
  const std::int64_t warps =
      std::clamp<std::int64_t>(std::min(kMostCounts / experts, (uses + kWarp - 1) / kWarp), 1, kGroupThreads / kWarp);
  return launch_dependent(group_uses_kernel, dim3(1), static_cast<unsigned>(warps * kWarp),
                          static_cast<std::size_t>(warps * experts) * 4, stream, ids, static_cast<int>(uses),
                          static_cast<int>(experts), view_table(table, experts));
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
