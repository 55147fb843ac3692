// Routers of packed BF16 for few tokens on Hopper: a cluster of blocks routes up to eight tokens, and norms a lone one
// first. Logits meet in the shared memory of the block that chooses, which is nearer than the second-level cache.
//
// The sums are those of router_packed.cu, in the same order, and the norm's those of rms_norm.cu.
#include <algorithm>

#include "backend/cuda/experts/choose.cuh"
#include "backend/cuda/experts/router.h"
#include "backend/cuda/experts/router_units.cuh"
#include "backend/cuda/experts/shared_memory.cuh"
#include "backend/cuda/fragment/mma.cuh"
#include "backend/cuda/fragment/stage.cuh"
#include "backend/cuda/fragment/wgmma.cuh"
#include "backend/cuda/linear/narrow_input.cuh"
#include "backend/cuda/linear/product_job.cuh"
#include "backend/cuda/ops/norm_row.cuh"
#include "backend/cuda/predecessor.cuh"

namespace vernier::cuda {
namespace {

constexpr int kWarp = 32;
constexpr int kBlocks = 8;  ///< of a cluster, which are as many as it has tokens at most
constexpr int kWarps = 16;
constexpr int kThreads = kWarps * kWarp;
constexpr int kFewUnits = 2;  ///< of a warp: its block then fits beside one of the kernel in front
constexpr int kMostUnits = 4;
constexpr int kRowFours = 2;  ///< of a thread, of the row that is normed
constexpr int kStride = 20;   ///< of a token's rows in shared memory: no bank conflicts

struct ClusterRouteArgs {
  RouterLogits logits;
  ChooseExperts choice;
  bool is_whole;  ///< four columns of the input, from a multiple of four on, are all there and aligned, or none is
};

__host__ __device__ constexpr int quarter_units(int units, int quarter) {
  return quarter_begin(units, quarter + 1) - quarter_begin(units, quarter);
}

/// A block's items: quarters of row tiles that follow each other.
struct Items {
  int begin;
  int end;

  __host__ __device__ Items(const WeightRef& w, int block) {
    const int all = (w.rows + kTileRows - 1) / kTileRows * kQuarters;
    begin = all * block / kBlocks;
    end = all * (block + 1) / kBlocks;
  }
  __host__ __device__ int units(const WeightRef& w) const {
    int sum = 0;
    for (int i = begin; i < end; ++i) sum += quarter_units(w.units, i % kQuarters);
    return sum;
  }
};

/// Shared memory of a block, in floats.
struct ClusterMemory {
  int totals;  ///< [quarter][expert] of the token that the block chooses for
  int choice;
  int row;   ///< the normed row
  int sums;  ///< [unit][token][kStride]
  int size;

  __host__ __device__ explicit ClusterMemory(const ClusterRouteArgs& args) {
    const WeightRef& w = args.logits.router.weight;
    const int tokens = static_cast<int>(args.logits.tokens < kBlocks ? args.logits.tokens : kBlocks);
    totals = 0;
    choice = kQuarters * w.rows;
    row = (choice + ChoiceMemory::words(args.choice.experts, args.choice.top_k) + 3) / 4 * 4;
    sums = row + (args.logits.norm.weight != nullptr ? w.units * kUnitCols : 0);
    size = sums + kMostUnits * kWarps * tokens * kStride;
  }
};

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

constexpr int kPieces = pieces_per_unit(Packing::kBF16);

/// Stores a number where `to` lies in the cluster's block `rank`, whose barrier counts its bytes.
__device__ __forceinline__ void send(float value, std::uint32_t to, std::uint32_t barrier, unsigned rank) {
  asm volatile(
      "{\n.reg .b32 there, counter;\nmapa.shared::cluster.u32 there, %0, %3;\nmapa.shared::cluster.u32 counter, %1, "
      "%3;\n"
      "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b32 [there], %2, [counter];\n}\n" ::"r"(to),
      "r"(barrier), "r"(__float_as_uint(value)), "r"(rank)
      : "memory");
}

/// A unit that a warp holds.
struct HeldUnit {
  uint4 codes[kPieces];
  int col;  ///< the first; -1: there is none
};

__device__ __forceinline__ void ask(const WeightRef& w, const Items& items, int number, HeldUnit& held) {
  held.col = -1;
#pragma unroll 1
  for (int i = items.begin; i < items.end; ++i) {
    const int count = quarter_units(w.units, i % kQuarters);
    if (number >= count) {
      number -= count;
      continue;
    }
    const int unit = quarter_begin(w.units, i % kQuarters) + number;
    const std::byte* const from = w.codes +
                                  (std::int64_t{i / kQuarters} * w.units + unit) * unit_bytes(Packing::kBF16) +
                                  threadIdx.x % kWarp * 16;
#pragma unroll
    for (int p = 0; p < kPieces; ++p) held.codes[p] = load_stream(from + p * kPieceBytes);
    held.col = unit * kUnitCols;
    return;
  }
}

/// The row, normed, into shared memory at `to`, and by the cluster's first block to where the experts read it.
struct NormedRow {
  const ClusterRouteArgs& args;
  float4 weight[kRowFours];
  int first;
  int step;

  __device__ explicit NormedRow(const ClusterRouteArgs& of) : args(of) {
    const int cols = of.logits.router.weight.cols;
    const auto threads = static_cast<int>(norm_threads(cols));
    first = static_cast<int>(threadIdx.x) * 4;
    step = threads * 4;
    if (static_cast<int>(threadIdx.x) >= threads) first = of.logits.router.weight.units * kUnitCols;  // none
#pragma unroll
    for (int i = 0; i < kRowFours; ++i) weight[i] = four(of.logits.norm.weight, i);
  }
  __device__ __forceinline__ float4 four(const float* from, int i) const {
    const int col = first + i * step;
    if (col >= args.logits.router.weight.cols) return make_float4(0.0F, 0.0F, 0.0F, 0.0F);
    return *reinterpret_cast<const float4*>(from + col);
  }
  __device__ __forceinline__ void stage(float* to) const {
    __shared__ float partial[kWarps];
    const WeightRef& w = args.logits.router.weight;
    float4 held[kRowFours];
    float squares = 0.0F;
#pragma unroll
    for (int i = 0; i < kRowFours; ++i) held[i] = four(args.logits.x, i);
#pragma unroll
    for (int i = 0; i < kRowFours; ++i) squares += squares_of(held[i]);
    const float sum = block_sum(squares, partial, step / 4 / kWarp);
    const float factor = norm_factor(sum, w.cols, args.logits.norm.eps);
#pragma unroll
    for (int i = 0; i < kRowFours; ++i) {
      const int col = first + i * step;
      if (col >= w.units * kUnitCols) break;
      const float4 result = normed(held[i], weight[i], factor);
      *reinterpret_cast<float4*>(to + col) = result;
      if (blockIdx.x == 0 && col < w.cols) *reinterpret_cast<float4*>(args.logits.norm.memory + col) = result;
    }
    __syncthreads();
  }
};

/// A unit's sums to `to`, [token][kStride].
__device__ __forceinline__ void multiply(const HeldUnit& held, const float4 (&x)[kPieces], int tokens, float* to) {
  const auto lane = static_cast<int>(threadIdx.x % kWarp);
  float first[4] = {};
  float rest[4] = {};
#pragma unroll
  for (int p = 0; p < kPieces; ++p) {
    FragmentB terms[3];
    split_columns(x[p], terms);
    const FragmentA a = {{held.codes[p].x, held.codes[p].y, held.codes[p].z, held.codes[p].w}};
    multiply_add(first, a, terms[0]);
    multiply_add(rest, a, terms[2]);
    multiply_add(rest, a, terms[1]);
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int column = lane % 4 * 2 + i % 2;
    const float value = rest[i] == rest[i] ? __fadd_rn(rest[i], first[i]) : first[i];
    if (column < tokens) to[column * kStride + lane / 4 + i / 2 * 8] = value;
  }
}

/// Adds the units of the block's items up and sends each sum to who chooses for its token.
__device__ __forceinline__ void send_totals(const WeightRef& w, const Items& items, int tokens, const float* sums,
                                            std::uint32_t totals, std::uint32_t barrier) {
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x); i < (items.end - items.begin) * kTileRows * tokens; i += kThreads) {
    const int token = i / kTileRows % tokens;
    const int item = items.begin + i / kTileRows / tokens;
    const int row = item / kQuarters * kTileRows + i % kTileRows;
    int place = 0;
    for (int before = items.begin; before < item; ++before) place += quarter_units(w.units, before % kQuarters);
    const int count = quarter_units(w.units, item % kQuarters);
    const float* from = sums + (place * tokens + token) * kStride + i % kTileRows;
    float total = 0.0F;
    for (int u = 0; u < count; ++u) total = __fadd_rn(total, from[u * tokens * kStride]);
    if (row >= w.rows) continue;
    send(total, totals + (item % kQuarters * w.rows + row) * 4, barrier, static_cast<unsigned>(token));
  }
}

#endif

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
#define VN_CLUSTER __cluster_dims__(kBlocks, 1, 1)
#else
#define VN_CLUSTER
#endif

/// Grid: a cluster for each eight tokens. Weights are on their way before the input is there.
template <int kHeldUnits, bool kNorms>
__global__ void VN_CLUSTER __launch_bounds__(kThreads, kHeldUnits <= kFewUnits ? 2 : 1)
    route_cluster_kernel(const __grid_constant__ ClusterRouteArgs args) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ __align__(16) float memory[];
  __shared__ __align__(8) std::uint64_t arrived;
  const WeightRef& w = args.logits.router.weight;
  const ClusterMemory at(args);
  const auto warp = static_cast<int>(threadIdx.x / kWarp);
  const auto lane = static_cast<int>(threadIdx.x % kWarp);
  const unsigned rank = cluster_rank();
  const std::int64_t first_token = std::int64_t{blockIdx.x} / kBlocks * kBlocks;
  const int tokens = static_cast<int>(min(std::int64_t{kBlocks}, args.logits.tokens - first_token));
  const auto barrier = static_cast<std::uint32_t>(__cvta_generic_to_shared(&arrived));
  if (threadIdx.x == 0) {
    init_barrier(barrier, 1);
    asm volatile("fence.mbarrier_init.release.cluster;\n" ::: "memory");
  }
  asm volatile("barrier.cluster.arrive.aligned;\n" ::: "memory");
  release_successor();
  const Items items(w, static_cast<int>(rank));
  HeldUnit held[kHeldUnits];
#pragma unroll
  for (int h = 0; h < kHeldUnits; ++h) ask(w, items, h * kWarps + warp, held[h]);
  if constexpr (kNorms) {
    const NormedRow row(args);
    wait_for_predecessor();
    row.stage(memory + at.row);
  } else {
    wait_for_predecessor();
  }
#pragma unroll
  for (int h = 0; h < kHeldUnits; ++h) {
    if (held[h].col < 0) continue;
    float4 x[kPieces];
    const int col = held[h].col + lane % 4 * 16;
#pragma unroll
    for (int p = 0; p < kPieces; ++p) {
      if constexpr (kNorms) {
        x[p] = *reinterpret_cast<const float4*>(memory + at.row + col + p * 4);
      } else {
        x[p] = load_router_input(args.logits, args.is_whole, first_token + lane / 4, col + p * 4);
      }
    }
    multiply(held[h], x, tokens, memory + at.sums + (h * kWarps + warp) * tokens * kStride);
  }
  __syncthreads();
  asm volatile("barrier.cluster.wait.aligned;\n" ::: "memory");
  if (threadIdx.x == 0) arrive_expecting(barrier, static_cast<std::uint32_t>(kQuarters * w.rows * 4));
  const auto totals = static_cast<std::uint32_t>(__cvta_generic_to_shared(memory + at.totals));
  send_totals(w, items, tokens, memory + at.sums, totals, barrier);
  if (static_cast<int>(rank) >= tokens || warp > 0) return;
  wait_for_phase(barrier, 0);
  choose_from(args.choice, first_token + rank, ChoiceMemory::at(memory + at.choice, args.choice.experts), [&](int e) {
    float sum = memory[at.totals + e];
#pragma unroll
    for (int i = 1; i < kQuarters; ++i) sum = __fadd_rn(sum, memory[at.totals + i * w.rows + e]);
    return finish_product(args.logits.router, e, sum, nullptr);
  });
#endif
}

int most_units(const WeightRef& w) {
  int most = 0;
  for (int block = 0; block < kBlocks; ++block) most = std::max(most, Items(w, block).units(w));
  return most;
}

}  // namespace

bool has_cluster_route(const RouterLogits& logits) {
  constexpr std::int64_t kMostTokens = 16;  // with more there are too few blocks
  const WeightRef& w = logits.router.weight;
  if (w.packing != Packing::kBF16) return false;
  if (most_units(w) <= kFewUnits * kWarps) return logits.tokens <= kMostTokens;
  return most_units(w) <= kMostUnits * kWarps && can_norm_row(logits);
}

bool can_norm_row(const RouterLogits& logits) {
  const WeightRef& w = logits.router.weight;
  const RowNorm& norm = logits.norm;
  const auto is_aligned = [](const void* data) { return reinterpret_cast<std::uintptr_t>(data) % 16 == 0; };
  return logits.tokens == 1 && norm.weight != nullptr && w.cols % 4 == 0 &&
         w.units * kUnitCols <= kRowFours * static_cast<int>(norm_threads(w.cols)) * 4 && is_aligned(logits.x) &&
         is_aligned(norm.weight) && is_aligned(norm.memory);
}

cudaError_t route_in_cluster(const RouterLogits& logits, const ChooseExperts& choice, cudaStream_t stream) {
  const WeightRef& w = logits.router.weight;
  const bool is_whole =
      logits.x_stride % 4 == 0 && reinterpret_cast<std::uintptr_t>(logits.x) % 16 == 0 && w.cols % 4 == 0;
  const ClusterRouteArgs args = {logits, choice, is_whole};
  const auto clusters = static_cast<unsigned>((logits.tokens + kBlocks - 1) / kBlocks);
  const std::size_t bytes = static_cast<std::size_t>(ClusterMemory(args).size) * sizeof(float);
  const bool norms = logits.norm.weight != nullptr;
  const auto kernel = most_units(w) <= kFewUnits * kWarps
                          ? norms ? route_cluster_kernel<kFewUnits, true> : route_cluster_kernel<kFewUnits, false>
                      : norms ? route_cluster_kernel<kMostUnits, true>
                              : route_cluster_kernel<kMostUnits, false>;
  return launch_leaving_room(kernel, dim3(clusters * kBlocks), kThreads, bytes, stream, args);
}

}  // namespace vernier::cuda
