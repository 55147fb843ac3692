// The likeliest logits of each row, ordered, and sums of odds (backend/odds.h). Three kernels: the largest of each
// small group of logits; the ranking, by one block a row, which reads again only the groups that may hold a likely one;
// and the sums, which are of integers, so that threads may add them in any order.
#include "backend/cuda/ops/launch.h"
#include "backend/cuda/ops/math.cuh"
#include "backend/cuda/ops/ops.h"
#include "backend/odds.h"

namespace vernier::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kRankThreads = 1024;
constexpr int kMostGroups = 8192;      // whose maxima fit in shared memory
constexpr int kMostCandidates = 2048;  // of a row; more are only met where very many logits are alike
constexpr int kGroupsPerThread = 4;
constexpr int kSumPerThread = 4;
constexpr int kRankWarps = kRankThreads / kWarpSize;
static_assert(kRankWarps == kWarpSize, "a warp reads a number of each warp");

/// A logit as an integer that orders as logits do, zeros of both signs alike; kNotFinite for what isn't finite.
constexpr std::uint32_t kNotFinite = ~0U;
__device__ std::uint32_t order_key(float logit) {
  if (!isfinite(logit)) return kNotFinite;
  const std::uint32_t bits = __float_as_uint(logit + 0.0F);
  return (bits >> 31U) != 0 ? ~bits : bits ^ 0x80000000U;
}

/// The likelier logit has the larger rank key.
__device__ std::uint64_t rank_key(std::uint32_t key, std::int64_t id) {
  return (std::uint64_t{key} << 32U) + ~static_cast<std::uint32_t>(id);
}
__device__ std::int32_t id_of(std::uint64_t rank_key) {
  return static_cast<std::int32_t>(~static_cast<std::uint32_t>(rank_key));
}

struct Ranks {
  MatrixView logits;
  int group_size;  // a power of two
  int num_groups;
  std::uint32_t* largest;  // [rows, num_groups]: order keys
  const RankWish* wishes;
  std::int32_t count;
  RankedRow* rows;
  RankedLogit* entries;

  __device__ const float* row(std::int64_t r) const { return logits.data + r * logits.stride; }
};

/// `lanes` neighbouring threads share a group; each block has kGroupsPerThread rounds of groups.
__global__ void __launch_bounds__(kThreads) largest_of_groups(Ranks ranks) {
  release_successor();
  wait_for_predecessor();
  const std::int64_t row = blockIdx.y;
  const float* const logits = ranks.row(row);
  const int lanes = min(ranks.group_size, kWarpSize);
  const int lane = static_cast<int>(threadIdx.x) % lanes;
  const int first = static_cast<int>(blockIdx.x) * kGroupsPerThread * kThreads + static_cast<int>(threadIdx.x);
  std::uint32_t largest[kGroupsPerThread];
#pragma unroll
  for (int round = 0; round < kGroupsPerThread; ++round) {
    const std::int64_t group = (first + round * kThreads) / lanes;
    largest[round] = 0;
    for (int i = lane; i < ranks.group_size; i += lanes) {
      const std::int64_t id = group * ranks.group_size + i;
      if (id < ranks.logits.cols) largest[round] = max(largest[round], order_key(logits[id]));
    }
  }
#pragma unroll
  for (int round = 0; round < kGroupsPerThread; ++round) {
    const int group = (first + round * kThreads) / lanes;
    for (int offset = lanes / 2; offset > 0; offset /= 2) {
      largest[round] = max(largest[round], __shfl_xor_sync(0xFFFFFFFFU, largest[round], offset));
    }
    if (lane == 0 && group < ranks.num_groups) ranks.largest[row * ranks.num_groups + group] = largest[round];
  }
}

/// What a block that ranks a row shares.
struct RankMemory {
  std::uint64_t candidates[kMostCandidates];
  std::uint64_t likeliest_left_over;  // of those for which there was no room
  int num_candidates;
  int num_groups;  // that may hold a candidate
  std::uint32_t of_warps[2][kRankWarps];
  std::uint16_t groups[kMostGroups];
};

/// The maxima of a row's groups, shared out among a block's threads.
struct HeldMaxima {
  std::uint32_t keys[kMostGroups / kRankThreads];

  __device__ HeldMaxima(const std::uint32_t* largest, int num_groups) {
#pragma unroll
    for (int i = 0; i < kMostGroups / kRankThreads; ++i) {
      const int group = i * kRankThreads + static_cast<int>(threadIdx.x);
      keys[i] = group < num_groups ? largest[group] : 0;
    }
  }
  __device__ std::uint32_t largest() const {
    std::uint32_t result = 0;
#pragma unroll
    for (const std::uint32_t key : keys) result = max(result, key);
    return result;
  }
  __device__ unsigned count_from(std::uint32_t least) const {
    unsigned count = 0;
#pragma unroll
    for (const std::uint32_t key : keys) count += key >= least ? 1 : 0;
    return count;
  }
};

/// The block's largest in every thread. Calls that follow each other take turns with `of_warps`.
__device__ std::uint32_t block_max(std::uint32_t value, std::uint32_t* of_warps) {
  value = __reduce_max_sync(0xFFFFFFFFU, value);
  if (threadIdx.x % kWarpSize == 0) of_warps[threadIdx.x / kWarpSize] = value;
  __syncthreads();
  return __reduce_max_sync(0xFFFFFFFFU, of_warps[threadIdx.x % kWarpSize]);
}

__device__ std::uint32_t block_sum(std::uint32_t value, std::uint32_t* of_warps) {
  value = __reduce_add_sync(0xFFFFFFFFU, value);
  if (threadIdx.x % kWarpSize == 0) of_warps[threadIdx.x / kWarpSize] = value;
  __syncthreads();
  return __reduce_add_sync(0xFFFFFFFFU, of_warps[threadIdx.x % kWarpSize]);
}

/// The largest key that `count` groups' maxima reach, found bit by bit; 0 where there are fewer groups.
__device__ std::uint32_t least_candidate(RankMemory& memory, const HeldMaxima& held, std::uint32_t count) {
  std::uint32_t key = 0;
#pragma unroll 1
  for (int bit = 31; bit >= 0; --bit) {
    const std::uint32_t tried = key | 1U << bit;
    if (block_sum(held.count_from(tried), memory.of_warps[bit % 2]) >= count) key = tried;
  }
  return key;
}

/// Lists the groups whose maxima reach `least`, then their logits that do.
__device__ void find_candidates(RankMemory& memory, const Ranks& ranks, const HeldMaxima& held, const float* logits,
                                std::uint32_t least) {
  if (threadIdx.x == 0) {
    memory.num_groups = memory.num_candidates = 0;
    memory.likeliest_left_over = 0;
  }
  __syncthreads();
#pragma unroll
  for (int i = 0; i < kMostGroups / kRankThreads; ++i) {
    const int group = i * kRankThreads + static_cast<int>(threadIdx.x);
    if (group < ranks.num_groups && held.keys[i] >= least) {
      memory.groups[atomicAdd(&memory.num_groups, 1)] = static_cast<std::uint16_t>(group);
    }
  }
  __syncthreads();
  const std::int64_t num_logits = std::int64_t{memory.num_groups} * ranks.group_size;
  for (std::int64_t i = threadIdx.x; i < num_logits; i += kRankThreads) {
    const std::int64_t id = std::int64_t{memory.groups[i / ranks.group_size]} * ranks.group_size + i % ranks.group_size;
    if (id >= ranks.logits.cols) continue;
    const std::uint32_t key = order_key(logits[id]);
    if (key < least) continue;
    const int at = atomicAdd(&memory.num_candidates, 1);
    if (at < kMostCandidates) {
      memory.candidates[at] = rank_key(key, id);
    } else {
      atomicMax(reinterpret_cast<unsigned long long*>(&memory.likeliest_left_over), rank_key(key, id));
    }
  }
  __syncthreads();
}

__global__ void __launch_bounds__(kRankThreads) rank_rows(Ranks ranks) {
  release_successor();
  wait_for_predecessor();
  extern __shared__ __align__(16) unsigned char shared[];
  RankMemory& memory = *reinterpret_cast<RankMemory*>(shared);
  const std::int64_t row = blockIdx.x;
  const float* const logits = ranks.row(row);
  const HeldMaxima held(ranks.largest + row * ranks.num_groups, ranks.num_groups);
  const std::uint32_t largest = block_max(held.largest(), memory.of_warps[0]);
  RankedRow& result = ranks.rows[row];
  if (largest == kNotFinite) {
    if (threadIdx.x == 0) result = RankedRow{};
    return;
  }
  const std::uint32_t least = ranks.count == 1 ? largest : least_candidate(memory, held, ranks.count);
  find_candidates(memory, ranks, held, logits, least);
  // A candidate's place is the number of likelier ones.
  const int listed = min(memory.num_candidates, kMostCandidates);
  const bool all_listed = memory.num_candidates == listed;
  const int wanted = all_listed ? ranks.count : 1;
  RankedLogit* const entries = ranks.entries + row * ranks.count;
  for (int i = static_cast<int>(threadIdx.x); i < listed; i += kRankThreads) {
    const std::uint64_t candidate = max(memory.candidates[i], all_listed ? 0 : memory.likeliest_left_over);
    int place = 0;
    for (int j = 0; j < listed; ++j) place += memory.candidates[j] > candidate ? 1 : 0;
    if (place >= wanted) continue;
    const std::int32_t id = id_of(candidate);
    entries[place] = {id, logits[id]};
  }
  if (threadIdx.x == 0) result = RankedRow{0, 0, min(wanted, listed), 1};
}

__global__ void __launch_bounds__(kThreads) sum_odds(Ranks ranks) {
  release_successor();
  wait_for_predecessor();
  const std::int64_t row = blockIdx.y;
  const RankWish wish = ranks.wishes[row];
  RankedRow& result = ranks.rows[row];
  const bool has_draw = wish.inverse_temperature > 0.0;
  if (result.is_finite == 0 || !(has_draw || wish.unit_odds)) return;
  const float* const logits = ranks.row(row);
  const float largest = ranks.entries[row * ranks.count].logit;
  const bool apart = wish.unit_odds && wish.inverse_temperature != 1.0;
  unsigned long long draw = 0;
  unsigned long long unit = 0;
#pragma unroll
  for (int i = 0; i < kSumPerThread; ++i) {
    const std::int64_t id = (std::int64_t{blockIdx.x} * kSumPerThread + i) * kThreads + threadIdx.x;
    if (id >= ranks.logits.cols) continue;
    const float logit = logits[id];
    if (has_draw) draw += odds_of(logit, largest, wish.inverse_temperature);
    if (apart) unit += odds_of(logit, largest, 1.0);
  }
  draw = warp_sum(draw);
  unit = wish.unit_odds && !apart ? draw : warp_sum(unit);
  if (threadIdx.x % kWarpSize != 0) return;
  if (draw > 0) atomicAdd(reinterpret_cast<unsigned long long*>(&result.draw_odds), draw);
  if (unit > 0) atomicAdd(reinterpret_cast<unsigned long long*>(&result.unit_odds), unit);
}

unsigned blocks_for(std::int64_t items, int a_block) { return static_cast<unsigned>((items + a_block - 1) / a_block); }

}  // namespace

Status rank_logits(CudaContext& context, const RankArgs& args) {
  const auto num_rows = static_cast<unsigned>(args.logits.rows);
  Ranks ranks = {.logits = args.logits,
                 .group_size = 1,
                 .num_groups = 0,
                 .largest = nullptr,
                 .wishes = nullptr,
                 .count = args.count,
                 .rows = args.rows,
                 .entries = args.entries};
  while (std::int64_t{ranks.group_size} * kMostGroups < args.logits.cols) ranks.group_size *= 2;
  ranks.num_groups = static_cast<int>((args.logits.cols + ranks.group_size - 1) / ranks.group_size);
  const std::size_t maxima = std::size_t{num_rows} * static_cast<std::size_t>(ranks.num_groups);
  VN_ASSIGN(void* largest, context.scratch.get(ScratchSlot::kRankMaxima, maxima * sizeof(std::uint32_t)));
  ranks.largest = static_cast<std::uint32_t*>(largest);
  bool any_sum = false;
  for (const RankWish& wish : args.wishes) any_sum = any_sum || wish.inverse_temperature > 0.0 || wish.unit_odds;
  if (any_sum) {
    VN_ASSIGN(ranks.wishes, context.upload(args.wishes));  // first: no copy stands between the kernels then
  }
  const int lanes = ranks.group_size < kWarpSize ? ranks.group_size : kWarpSize;
  const dim3 group_blocks(blocks_for(std::int64_t{ranks.num_groups} * lanes, kThreads * kGroupsPerThread), num_rows);
  VN_TRY(launch(context, {group_blocks, dim3(kThreads)}, largest_of_groups, ranks));
  VN_TRY(launch(context, {dim3(num_rows), dim3(kRankThreads), sizeof(RankMemory)}, rank_rows, ranks));
  if (!any_sum) return {};
  const dim3 sum_blocks(blocks_for(args.logits.cols, kThreads * kSumPerThread), num_rows);
  return launch(context, {sum_blocks, dim3(kThreads)}, sum_odds, ranks);
}

}  // namespace vernier::cuda
