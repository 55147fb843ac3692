#include <algorithm>

#include "backend/cuda/experts/combine.cuh"
#include "backend/cuda/experts/expert_kernels.h"
#include "backend/cuda/experts/gate.cuh"
#include "backend/cuda/linear/narrow_input.cuh"
#include "backend/cuda/predecessor.cuh"

namespace vernier::cuda {
namespace {

constexpr int kWarp = 32;
constexpr int kGroupThreads = 1024;
constexpr int kThreads = 256;

/// The table: [0] groups, then expert [most groups], first [most groups + 1], uses [uses].
struct TableView {
  std::int32_t* count;
  std::int32_t* expert;
  std::int32_t* first;
  std::int32_t* uses;
};

TableView view_table(std::int32_t* table, const GroupedUses& sizes) {
  const std::int64_t groups = sizes.most_groups();
  return {table, table + 1, table + 1 + groups, table + 2 + 2 * groups};
}

/// An id of the calling lane, -1 for none or one outside the experts, and the lanes that have the same.
struct WarpIds {
  int id;
  unsigned same;
};

/// Calls visit(i, ids) for a warp's ids [begin, end), 32 at a time; several loads are on their way together.
template <class Visit>
__device__ __forceinline__ void visit_ids(const std::int32_t* ids, int begin, int end, int experts,
                                          const Visit& visit) {
  constexpr int kAtOnce = 8;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
#pragma unroll 1
  for (int first = begin; first < end; first += kAtOnce * kWarp) {
    int loaded[kAtOnce];
#pragma unroll
    for (int n = 0; n < kAtOnce; ++n) {
      const int i = first + n * kWarp + lane;
      loaded[n] = i < end ? ids[i] : -1;
    }
#pragma unroll
    for (int n = 0; n < kAtOnce; ++n) {
      if (first + n * kWarp >= end) break;
      const int known = loaded[n] >= 0 && loaded[n] < experts ? loaded[n] : -1;
      visit(first + n * kWarp + lane, WarpIds{known, __match_any_sync(0xFFFFFFFFU, known)});
      __syncwarp();
    }
  }
}

/// The sum of a warp's lanes up to and with the calling one.
__device__ __forceinline__ int scan_lanes(int value) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  for (int step = 1; step < kWarp; step *= 2) {
    const int other = __shfl_up_sync(0xFFFFFFFFU, value, step);
    if (lane >= step) value += other;
  }
  return value;
}

/// Uses of an expert, and its groups, of at most `most` uses each.
struct ExpertCount {
  int uses;
  int groups;
};
__device__ __forceinline__ ExpertCount count_expert(int expert, int warps, int experts, int most,
                                                    const std::int32_t* counts) {
  int uses = 0;
  for (int w = 0; w < warps && expert < experts; ++w) uses += counts[w * experts + expert];
  return {uses, (uses + most - 1) / most};
}

/// Places of the experts' uses: turns the counts of the warps, [warps][experts], into where each begins. A warp takes
/// 32 experts at a time; `sums` has room for each 32.
__device__ void place_groups(int warps, int experts, int most, const TableView& table, std::int32_t* counts,
                             ExpertCount* sums) {
  constexpr unsigned kAll = 0xFFFFFFFFU;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int parts = (experts + kWarp - 1) / kWarp;
  for (int part = warp; part < parts; part += warps) {
    const ExpertCount own = count_expert(part * kWarp + lane, warps, experts, most, counts);
    const ExpertCount sum = {__reduce_add_sync(kAll, own.uses), __reduce_add_sync(kAll, own.groups)};
    if (lane == 0) sums[part] = sum;
  }
  __syncthreads();
  for (int part = warp; part < parts; part += warps) {
    ExpertCount before = {0, 0};
    for (int i = lane; i < part; i += kWarp) before = {before.uses + sums[i].uses, before.groups + sums[i].groups};
    before = {__reduce_add_sync(kAll, before.uses), __reduce_add_sync(kAll, before.groups)};
    const int e = part * kWarp + lane;
    const ExpertCount own = count_expert(e, warps, experts, most, counts);
    int place = before.uses + scan_lanes(own.uses) - own.uses;
    const int group = before.groups + scan_lanes(own.groups) - own.groups;
    for (int i = 0; i < own.groups; ++i) {
      table.expert[group + i] = e;
      table.first[group + i] = place + i * most;
    }
    if (part == parts - 1 && lane == kWarp - 1) {
      table.first[group + own.groups] = place + own.uses;
      *table.count = group + own.groups;
    }
    for (int w = 0; w < warps && e < experts; ++w) {
      const int count = counts[w * experts + e];
      counts[w * experts + e] = place;
      place += count;
    }
  }
}

/// One block. Each warp counts and places a part of the uses, in their order.
__device__ void group_uses_of(const std::int32_t* ids, int uses, int experts, int most, const TableView& table) {
  extern __shared__ __align__(8) std::int32_t counts[];  // [warps][experts], then sums of each 32
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int warps = static_cast<int>(blockDim.x) / kWarp;
  const int share = (uses + warps * kWarp - 1) / (warps * kWarp) * kWarp;
  const int begin = min(warp * share, uses);
  const int end = min(begin + share, uses);
  std::int32_t* const own = counts + warp * experts;
  for (int e = lane; e < experts; e += kWarp) own[e] = 0;
  __syncwarp();
  visit_ids(ids, begin, end, experts, [&](int, const WarpIds& at) {
    if (at.id >= 0 && lane == __ffs(static_cast<int>(at.same)) - 1) own[at.id] += __popc(at.same);
  });
  __syncthreads();
  place_groups(warps, experts, most, table, counts,
               reinterpret_cast<ExpertCount*>(counts + (warps * experts + 1) / 2 * 2));
  __syncthreads();
  visit_ids(ids, begin, end, experts, [&](int i, const WarpIds& at) {
    const int place = at.id >= 0 ? own[at.id] + __popc(at.same & ((1U << lane) - 1U)) : 0;
    __syncwarp();
    if (at.id >= 0) {
      table.uses[place] = i;
      if (lane == __ffs(static_cast<int>(at.same)) - 1) own[at.id] += __popc(at.same);
    }
  });
}

/// The first block groups, the others round a row each.
__global__ void __launch_bounds__(kGroupThreads)
    group_uses_kernel(const std::int32_t* ids, const __grid_constant__ GroupedUses sizes,
                      const __grid_constant__ TableView table, const __grid_constant__ RoundedTokens tokens) {
  release_successor();
  wait_for_predecessor();
  if (blockIdx.x == 0) {
    group_uses_of(ids, static_cast<int>(sizes.uses), static_cast<int>(sizes.experts), static_cast<int>(sizes.most_uses),
                  table);
    return;
  }
  const std::int64_t row = blockIdx.x - 1;
  const StagedColumns to = {tokens.to + row * tokens.x.terms * tokens.stride, static_cast<int>(tokens.stride),
                            tokens.cols, static_cast<int>(tokens.stride)};
  round_row(tokens.x.data + row * tokens.x.stride, to, tokens.x.terms);
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

/// A thread kCols columns of a token.
template <int kCols>
__global__ void __launch_bounds__(kThreads) combine_kernel(const __grid_constant__ CombineExperts args) {
  const int col = (static_cast<int>(blockIdx.x) * kThreads + static_cast<int>(threadIdx.x)) * kCols;
  const std::int64_t token = blockIdx.y;
  release_successor();
  wait_for_predecessor();
  if (col >= args.cols) return;
  struct alignas(kCols * sizeof(float)) Columns {
    float of[kCols];
  };
  auto* const y = reinterpret_cast<Columns*>(args.y + token * args.y_stride + col);
  Columns sum = *y;
  add_experts(args, token, col, sum.of);
  *y = sum;
}

unsigned blocks(std::int64_t size) { return static_cast<unsigned>((size + kThreads - 1) / kThreads); }

}  // namespace

std::int64_t group_table_size(const GroupedUses& sizes) { return 2 + 2 * sizes.most_groups() + sizes.uses; }

ExpertGroups group_table(const std::int32_t* table, const GroupedUses& sizes) {
  const TableView view = view_table(const_cast<std::int32_t*>(table), sizes);
  return {view.count, view.expert, view.first, view.uses};
}

cudaError_t group_uses(const std::int32_t* ids, const GroupedUses& sizes, std::int32_t* table,
                       const RoundedTokens& tokens, cudaStream_t stream) {
  constexpr std::int64_t kMostCounts = 48 * 1024 / 4;
  constexpr std::int64_t kManyUses = 4096;
  const std::int64_t wanted = sizes.uses > kManyUses ? kGroupThreads / kWarp : 8;  // each more is more to add up
  const std::int64_t warps = std::clamp<std::int64_t>(kMostCounts / sizes.experts, 1, wanted);
  const std::int64_t parts = (sizes.experts + kWarp - 1) / kWarp;
  const auto shared_bytes =
      static_cast<std::size_t>((warps * sizes.experts + 1) * 4) + static_cast<std::size_t>(parts) * sizeof(ExpertCount);
  return launch_dependent(group_uses_kernel, dim3(static_cast<unsigned>(1 + tokens.rows)),
                          static_cast<unsigned>(warps * kWarp), shared_bytes, stream, ids, sizes,
                          view_table(table, sizes), tokens);
}

cudaError_t activate_experts(const ActivateExperts& args, cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>(args.places), blocks(args.cols));
  return launch_dependent(activate_kernel, grid, kThreads, 0, stream, args);
}

cudaError_t combine_experts(const CombineExperts& args, cudaStream_t stream) {
  constexpr int kFour = 4;
  const auto tokens = static_cast<unsigned>(args.tokens);
  const bool is_aligned = args.cols % kFour == 0 && args.y_stride % kFour == 0 &&
                          reinterpret_cast<std::uintptr_t>(args.y) % (kFour * sizeof(float)) == 0;
  if (is_aligned) {
    return launch_dependent(combine_kernel<kFour>, dim3(blocks(args.cols / kFour), tokens), kThreads, 0, stream, args);
  }
  return launch_dependent(combine_kernel<1>, dim3(blocks(args.cols), tokens), kThreads, 0, stream, args);
}

}  // namespace vernier::cuda
