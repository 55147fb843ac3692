// Attention on tensor cores for bf16 and fp8 caches. Queries go in as one bf16 term or, not to be rounded, as three,
// weights of the softmax as two or three, so that products are those of fp32 numbers to 2^-17 or better; sums are fp32.
//
// Code size counts: a decode step runs through the kernel once a layer, and what isn't in the instruction cache by then
// is fetched from L2. So what runs once, or rarely, is not unrolled.
//
// A block takes a tile of query rows, a row being one head of one token; the heads that share a KV head and
// neighbouring tokens lie side by side. Keys, then values of a split come through a ring in shared memory. Rows are the
// columns of products, so that few of them waste little: a warp scores some of the keys, and sums some of the
// dimensions over all keys. attention_async.cu does the same for many rows, to the bit.
#include "backend/cuda/arrivals.cuh"
#include "backend/cuda/ops/attention.h"
#include "backend/cuda/ops/attention_fragment.cuh"
#include "backend/cuda/ops/attention_mma.cuh"
#include "backend/cuda/ops/attention_tile.cuh"
#include "backend/cuda/ops/math.cuh"

namespace vernier::cuda {
namespace {

template <int kDim, int kGroups, int kRing>
using Shared = MmaShared<kDim, kGroups, kRing>;
template <int kDim, int kGroups, int kRing>
using Walk = MmaWalk<kDim, kGroups, kRing>;

__device__ __forceinline__ int warp_index() { return static_cast<int>(threadIdx.x) / kWarpSize; }
__device__ __forceinline__ int lane_index() { return static_cast<int>(threadIdx.x) % kWarpSize; }

/// Splits the tile's queries into bf16 terms, in the order in which lanes take them.
template <int kDim, int kGroups, int kRing>
__device__ void load_queries(const AttentionKernelArgs& args, const Tile& tile, Shared<kDim, kGroups, kRing>& shared) {
  const int lane = lane_index();
#pragma unroll 1
  for (int item = warp_index(); item < kGroups * kDim / 16; item += Shared<kDim, kGroups, kRing>::kWarps) {
    const int group = item / (kDim / 16);
    const int step = item % (kDim / 16);
    const int row = group * 8 + lane / 4;
    float values[4] = {};
    if (tile.holds(row)) {
      const float* const from = args.q.data + tile.matrix_row(row) * args.q.stride +
                                std::int64_t{tile.head(row)} * kDim + step * 16 + lane % 4 * 2;
      values[0] = from[0];
      values[1] = from[1];
      values[2] = from[8];
      values[3] = from[9];
    }
#pragma unroll
    for (int term = 0; term < kMostTerms; ++term) {
      const std::uint32_t low = take_term(values[0], values[1]);
      shared.query[term][group][step][lane] = {low, take_term(values[2], values[3])};
    }
  }
}

template <int kDim, int kGroups, int kRing>
__device__ __forceinline__ std::int32_t own_cell(const AttentionKernelArgs& args,
                                                 const Walk<kDim, kGroups, kRing>& walk, std::int32_t split) {
  constexpr int kKeys = kSplitKeys / Shared<kDim, kGroups, kRing>::kWarps;
  return cell_of(args, walk.tile, split * kSplitKeys + warp_index() * kKeys + lane_index() % kKeys);
}

/// Asks for the next tile, if there is one; a group of copies in either case.
template <class Cell, int kDim, int kGroups, int kRing>
__device__ __forceinline__ void ask(const AttentionKernelArgs& args, Walk<kDim, kGroups, kRing>& walk,
                                    Shared<kDim, kGroups, kRing>& shared) {
  constexpr int kKeys = kSplitKeys / Shared<kDim, kGroups, kRing>::kWarps;
  if (walk.split < walk.end) {
    copy_rows<Cell, kDim, kSplitKeys, kKeys>(walk.step == 0 ? args.kv.keys : args.kv.values, walk.cell,
                                             address_in_shared(shared.ring[walk.fill]), warp_index() * kKeys);
    walk.step ^= 1;
    if (walk.step == 0) {
      ++walk.split;
      walk.cell = walk.next_cell;
      walk.next_cell = own_cell(args, walk, walk.split + 1);
    }
    if (++walk.fill == Shared<kDim, kGroups, kRing>::kStages) walk.fill = 0;
  }
  asm volatile("cp.async.commit_group;\n" ::: "memory");
}

/// Waits for the next tile, and asks for another in place of the last; its address.
template <class Cell, int kDim, int kGroups, int kRing>
__device__ __forceinline__ std::uint32_t next_tile(const AttentionKernelArgs& args, Walk<kDim, kGroups, kRing>& walk,
                                                   Shared<kDim, kGroups, kRing>& shared) {
  asm volatile("cp.async.wait_group %0;\n" ::"n"(Shared<kDim, kGroups, kRing>::kStages - 2) : "memory");
  __syncthreads();
  ask<Cell>(args, walk, shared);
  if (++walk.read == Shared<kDim, kGroups, kRing>::kStages) walk.read = 0;
  return address_in_shared(shared.ring[walk.read]);
}

/// A warp's scores: keys 16 (warp + i * kWarps) + lane / 4 (+ 8) and rows 2 (lane % 4) (+ 1) of each group.
template <int kDim, int kGroups, int kRing>
using Scores = float[Shared<kDim, kGroups, kRing>::kKeyTiles][kGroups][4];
/// A warp's sums: dimensions in the place of keys.
template <int kDim, int kGroups, int kRing>
using Sums = float[Shared<kDim, kGroups, kRing>::kDimTiles][kGroups][4];

/// Raw scores of the warp's keys.
template <int kDim, int kGroups, int kRing>
__device__ __forceinline__ void score_keys(const AttentionKernelArgs& args, const Shared<kDim, kGroups, kRing>& shared,
                                           std::uint32_t tile, Scores<kDim, kGroups, kRing>& scores) {
  using Memory = Shared<kDim, kGroups, kRing>;
  const int lane = lane_index();
#pragma unroll
  for (int step = 0; step < kDim / 16; ++step) {
    uint4 keys[Memory::kKeyTiles];
#pragma unroll
    for (int i = 0; i < Memory::kKeyTiles; ++i) {
      const int row = (warp_index() + i * Memory::kWarps) * 16 + lane % 16;
      keys[i] = load_matrices<false>(tile + piece_offset<kSplitKeys>(row, step * 2 + lane / 16));
    }
#pragma unroll
    for (int term = kMostTerms - 1; term >= 0; --term) {  // small ones first
      if (term >= args.query_terms) continue;
#pragma unroll
      for (int group = 0; group < kGroups; ++group) {
        const uint2 query = shared.query[term][group][step][lane];
#pragma unroll
        for (int i = 0; i < Memory::kKeyTiles; ++i) multiply_add(scores[i][group], keys[i], query.x, query.y);
      }
    }
  }
}

/// Caps and masks scores, and leaves the warp's largest of each row.
template <int kDim, int kGroups, int kRing>
__device__ __forceinline__ void finish_scores(const AttentionKernelArgs& args, const Walk<kDim, kGroups, kRing>& walk,
                                              std::int32_t split, Shared<kDim, kGroups, kRing>& shared,
                                              Scores<kDim, kGroups, kRing>& scores) {
  using Memory = Shared<kDim, kGroups, kRing>;
  constexpr int kCount = Memory::kKeyTiles * 4;
  const int lane = lane_index();
  if (args.soft_cap > 0.0F) {  // code that isn't fetched costs nothing
#pragma unroll
    for (int i = 0; i < kCount * kGroups; ++i) {
      float& score = scores[i / (kGroups * 4)][i / 4 % kGroups][i % 4];
      score = finish_score(args, score);
    }
  }
  const std::int32_t begin = split * kSplitKeys;
  const bool is_seen = begin >= walk.tile.common.first && begin + kSplitKeys <= walk.tile.common.end;
#pragma unroll
  for (int group = 0; group < kGroups; ++group) {
    float largest[2] = {-INFINITY, -INFINITY};
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      float& score = scores[i / 4][group][i % 4];
      if (!is_seen) {
        const std::int32_t position = begin + (warp_index() + i / 4 * Memory::kWarps) * 16 + i / 2 % 2 * 8 + lane / 4;
        const KeyRange& keys = walk.keys[group][i % 2];
        if (position < keys.first || position >= keys.end) score = -INFINITY;
      }
      largest[i % 2] = fmaxf(largest[i % 2], score);
    }
#pragma unroll
    for (int h = 0; h < 2; ++h) {
#pragma unroll
      for (int offset = 4; offset < kWarpSize; offset *= 2) {
        largest[h] = fmaxf(largest[h], __shfl_xor_sync(kWholeWarp, largest[h], offset));
      }
      if (lane < 4) shared.largest[group * 8 + lane * 2 + h][warp_index()] = largest[h];
    }
  }
}

/// What the weights of a row are relative to.
template <int kDim, int kGroups, int kRing>
__device__ __forceinline__ float largest_of(const AttentionKernelArgs& args, const Shared<kDim, kGroups, kRing>& shared,
                                            int row) {
  float largest = -INFINITY;
#pragma unroll
  for (int i = 0; i < Shared<kDim, kGroups, kRing>::kWarps / 4; ++i) {
    const float4 four = *reinterpret_cast<const float4*>(&shared.largest[row][i * 4]);
    largest = fmaxf(largest, fmaxf(fmaxf(four.x, four.y), fmaxf(four.z, four.w)));
  }
  return largest_power(args, largest);
}

/// Scores become weights, for all warps to see.
template <int kDim, int kGroups, int kRing>
__device__ __forceinline__ void weigh(const AttentionKernelArgs& args, Shared<kDim, kGroups, kRing>& shared,
                                      const Scores<kDim, kGroups, kRing>& scores) {
  using Memory = Shared<kDim, kGroups, kRing>;
  const int lane = lane_index();
#pragma unroll
  for (int group = 0; group < kGroups; ++group) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int row = group * 8 + lane % 4 * 2 + h;
      const float largest = largest_of(args, shared, row);
      const float base = largest == -INFINITY ? 0.0F : largest;
#pragma unroll
      for (int i = 0; i < Memory::kKeyTiles; ++i) {
        const int tile = warp_index() + i * Memory::kWarps;
        float early = weight_of(args, scores[i][group][h], base);
        float late = weight_of(args, scores[i][group][2 + h], base);
        shared.sums[row][lane / 4][tile] = __fadd_rn(early, late);
        __nv_bfloat16* const to = &shared.weights[0][row][tile * 16 + lane / 4];
#pragma unroll
        for (int term = 0; term < kMostTerms; ++term) {
          if (term >= args.weight_terms) continue;
          const __nv_bfloat16 first = __float2bfloat16_rn(early);
          const __nv_bfloat16 second = __float2bfloat16_rn(late);
          early -= __bfloat162float(first);
          late -= __bfloat162float(second);
          to[term * Memory::kRows * (kSplitKeys + 8)] = first;
          to[term * Memory::kRows * (kSplitKeys + 8) + 8] = second;
        }
      }
    }
  }
}

/// sums += values of a split's keys times weights: of the warp's dimensions, a column a row.
template <int kDim, int kGroups, int kRing>
__device__ __forceinline__ void add_values(const AttentionKernelArgs& args, const Shared<kDim, kGroups, kRing>& shared,
                                           std::uint32_t tile, Sums<kDim, kGroups, kRing>& sums) {
  constexpr int kDimTiles = Shared<kDim, kGroups, kRing>::kDimTiles;
  const int lane = lane_index();
#pragma unroll
  for (int step = 0; step < kSplitKeys / 16; ++step) {
    uint4 values[kDimTiles];
#pragma unroll
    for (int j = 0; j < kDimTiles; ++j) {
      const int piece = (warp_index() * kDimTiles + j) * 2 + lane / 8 % 2;
      values[j] = load_matrices<true>(tile + piece_offset<kSplitKeys>(step * 16 + lane / 16 * 8 + lane % 8, piece));
    }
#pragma unroll
    for (int term = kMostTerms - 1; term >= 0; --term) {  // small ones first
      if (term >= args.weight_terms) continue;
#pragma unroll
      for (int group = 0; group < kGroups; ++group) {
        const auto* const weights = reinterpret_cast<const std::uint32_t*>(
            &shared.weights[term][group * 8 + lane / 4][step * 16 + lane % 4 * 2]);
#pragma unroll
        for (int j = 0; j < kDimTiles; ++j) multiply_add(sums[j][group], values[j], weights[0], weights[4]);
      }
    }
  }
}

/// The split's softmax of row lane / 4 of a group.
template <int kDim, int kGroups, int kRing>
__device__ __forceinline__ SoftmaxState state_of(const AttentionKernelArgs& args,
                                                 const Shared<kDim, kGroups, kRing>& shared, int group) {
  const int lane = lane_index();
  const int row = group * 8 + lane / 4;
  float total = 0.0F;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const float* const parts = shared.sums[row][lane % 4 * 2 + i];
    float sum = parts[0];
#pragma unroll
    for (int tile = 1; tile < kSplitKeys / 16; ++tile) sum = __fadd_rn(sum, parts[tile]);
    total = i == 0 ? sum : __fadd_rn(total, sum);
  }
  total = __fadd_rn(total, __shfl_xor_sync(kWholeWarp, total, 1));
  total = __fadd_rn(total, __shfl_xor_sync(kWholeWarp, total, 2));
  return {largest_of(args, shared, row), total};
}

/// What a thread has of sums: dimension of the result and row of the tile.
template <int kDim, int kGroups, int kRing>
__device__ __forceinline__ int dim_of(int j, int i) {
  return (warp_index() * Shared<kDim, kGroups, kRing>::kDimTiles + j) * 16 + i / 2 * 8 + lane_index() / 4;
}
__device__ __forceinline__ int row_of(int group, int i) { return group * 8 + lane_index() % 4 * 2 + i % 2; }
/// A number of that row, from the lanes that have row lane / 4.
__device__ __forceinline__ float of_row(float value, int i) {
  return __shfl_sync(kWholeWarp, value, lane_index() % 4 * 8 + i % 2 * 4);
}

template <int kDim, int kGroups, int kRing>
__device__ __forceinline__ void fold_split(const AttentionKernelArgs& args, Walk<kDim, kGroups, kRing>& walk,
                                           const Shared<kDim, kGroups, kRing>& shared,
                                           const Sums<kDim, kGroups, kRing>& sums, Sums<kDim, kGroups, kRing>& totals) {
#pragma unroll
  for (int group = 0; group < kGroups; ++group) {
    const FoldFactors own = fold(walk.state[group], state_of(args, shared, group));
    const FoldFactors factors[2] = {{of_row(own.first, 0), of_row(own.second, 0)},
                                    {of_row(own.first, 1), of_row(own.second, 1)}};
#pragma unroll
    for (int i = 0; i < Shared<kDim, kGroups, kRing>::kDimTiles * 4; ++i) {
      float& total = totals[i / 4][group][i % 4];
      total = fold_value(total, sums[i / 4][group][i % 4], factors[i % 2]);
    }
  }
}

template <int kDim, int kGroups, int kRing>
__device__ __forceinline__ void write_partials(const AttentionKernelArgs& args, const Tile& tile, std::int32_t split,
                                               const Shared<kDim, kGroups, kRing>& shared,
                                               const Sums<kDim, kGroups, kRing>& sums) {
#pragma unroll
  for (int group = 0; group < kGroups; ++group) {
    const SoftmaxState state = state_of(args, shared, group);
    const int own = group * 8 + lane_index() / 4;
    if (threadIdx.x < kWarpSize && lane_index() % 4 == 0 && tile.holds(own)) {
      float* const to = partial_of(args, tile.matrix_row(own), tile.head(own), split) + kDim;
      to[0] = state.largest;
      to[1] = state.total;
    }
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int row = row_of(group, h);
      if (!tile.holds(row)) continue;
      float* const to = partial_of(args, tile.matrix_row(row), tile.head(row), split);
#pragma unroll
      for (int i = h; i < Shared<kDim, kGroups, kRing>::kDimTiles * 4; i += 2)
        to[dim_of<kDim, kGroups, kRing>(i / 4, i % 4)] = sums[i / 4][group][i % 4];
    }
  }
}

template <int kDim, int kGroups, int kRing>
__device__ __forceinline__ void write_result(const AttentionKernelArgs& args, const Walk<kDim, kGroups, kRing>& walk,
                                             const Sums<kDim, kGroups, kRing>& totals) {
  const Tile& tile = walk.tile;
#pragma unroll
  for (int group = 0; group < kGroups; ++group) {
    const int own = group * 8 + lane_index() / 4;
    const float factor = tile.holds(own) ? finish(args, tile.head(own), walk.state[group]) : 0.0F;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float of_this = of_row(factor, h);
      const int row = row_of(group, h);
      if (!tile.holds(row)) continue;
      float* const to = args.y.data + tile.matrix_row(row) * args.y.stride + std::int64_t{tile.head(row)} * kDim;
#pragma unroll
      for (int i = h; i < Shared<kDim, kGroups, kRing>::kDimTiles * 4; i += 2) {
        to[dim_of<kDim, kGroups, kRing>(i / 4, i % 4)] = __fmul_rn(totals[i / 4][group][i % 4], of_this);
      }
    }
  }
}

/// y of the tile's rows from the partial states of all splits.
template <int kDim, int kRows, int kThreads>
__device__ void fold_tile(const AttentionKernelArgs& args, const Tile& tile) {
  constexpr int kWidth = 4;
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x); i < tile.rows(kRows) * (kDim / kWidth); i += kThreads) {
    const int row = i / (kDim / kWidth);
    const int d = i % (kDim / kWidth) * kWidth;
    const std::int64_t matrix_row = tile.matrix_row(row);
    const KeyRange keys = visible_keys(args, tile.slice.past + tile.token(row));
    const Neighbours<kWidth> result = fold_splits<kWidth>(args, matrix_row, tile.head(row), d, keys);
    float* const to = args.y.data + matrix_row * args.y.stride + std::int64_t{tile.head(row)} * kDim + d;
#pragma unroll
    for (int k = 0; k < kWidth; ++k) to[k] = result.value[k];
  }
}

template <class Cell, int kDim, int kGroups, int kRing>
__global__ void __launch_bounds__(Shared<kDim, kGroups, kRing>::kThreads, Shared<kDim, kGroups, kRing>::kBlocks)
    mma_kernel(const __grid_constant__ AttentionKernelArgs args) {
  release_successor();
  extern __shared__ uint4 memory[];
  using Memory = Shared<kDim, kGroups, kRing>;
  auto& shared = *reinterpret_cast<Memory*>(memory);
  Walk<kDim, kGroups, kRing> walk;
  // Late tiles see the most keys: they begin first.
  walk.tile =
      make_tile(args, static_cast<std::int32_t>(blockIdx.z) / args.num_chunks, static_cast<std::int32_t>(blockIdx.y),
                Memory::kRows, static_cast<std::int32_t>(gridDim.x - 1 - blockIdx.x));
  const Tile& tile = walk.tile;
  const std::int32_t splits = tile.last_split() - tile.first_split() + 1;
  const std::int32_t share = (splits + args.num_chunks - 1) / args.num_chunks;
  const std::int32_t begin = tile.first_split() + static_cast<std::int32_t>(blockIdx.z) % args.num_chunks * share;
  walk.end = min(begin + share, tile.last_split() + 1);
  const bool is_idle = tile.is_idle() || begin >= walk.end;
  // No kernel writes the step's tables: they can be read before the wait.
  if (!is_idle) {
    prefetch_split<Cell, kDim>(args, tile, begin);
    walk.split = begin;
    walk.cell = own_cell(args, walk, begin);
    walk.next_cell = own_cell(args, walk, begin + 1);
  }
  wait_for_predecessor();
  if (is_idle) return;
#pragma unroll 1
  for (int i = 0; i < Memory::kStages - 1; ++i) ask<Cell>(args, walk, shared);
  load_queries(args, tile, shared);
#pragma unroll
  for (int i = 0; i < kGroups * 2; ++i) {
    const int row = row_of(i / 2, i % 2);
    walk.keys[i / 2][i % 2] = tile.holds(row) ? visible_keys(args, tile.slice.past + tile.token(row)) : tile.keys;
    walk.state[i / 2] = empty_state();
  }
  Sums<kDim, kGroups, kRing> totals = {};
#pragma unroll 1
  for (std::int32_t split = begin; split < walk.end; ++split) {
    Scores<kDim, kGroups, kRing> scores = {};
    score_keys(args, shared, next_tile<Cell>(args, walk, shared), scores);
    finish_scores(args, walk, split, shared, scores);
    __syncthreads();
    weigh(args, shared, scores);
    Sums<kDim, kGroups, kRing> sums = {};
    add_values(args, shared, next_tile<Cell>(args, walk, shared), sums);
    if (args.partials != nullptr) {
      write_partials(args, tile, split, shared, sums);
    } else {
      fold_split(args, walk, shared, sums, totals);
    }
  }
  if (args.partials == nullptr) return write_result(args, walk, totals);
  if (args.arrivals == nullptr) return;
  const unsigned tile_number =
      (blockIdx.z / static_cast<unsigned>(args.num_chunks) * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
  const auto shares = static_cast<unsigned>((splits + share - 1) / share);
  if (arrives_last(args.arrivals + tile_number, shares)) fold_tile<kDim, Memory::kRows, Memory::kThreads>(args, tile);
}

template <class Cell, int kDim, int kGroups, int kRing>
Status run(const CudaContext& context, const AttentionKernelArgs& args, std::int32_t queries) {
  constexpr int kRows = Shared<kDim, kGroups, kRing>::kRows;
  const LaunchShape shape = {
      dim3(static_cast<unsigned>((queries + kRows - 1) / kRows), static_cast<unsigned>(args.kv.num_kv_heads),
           static_cast<unsigned>(args.step.num_slices * args.num_chunks)),
      dim3(Shared<kDim, kGroups, kRing>::kThreads), sizeof(Shared<kDim, kGroups, kRing>)};
  return launch(context, shape, mma_kernel<Cell, kDim, kGroups, kRing>, args);
}

/// Whether a block of that shape finds room: GPUs other than the large ones give it less shared memory.
template <int kDim, int kGroups, int kRing>
bool fits(const CudaContext& context) {
  return sizeof(Shared<kDim, kGroups, kRing>) <= context.max_shared_bytes;
}

/// Whether a block has so few splits that a small ring will do. The more shared memory attention has, the less is left
/// as first-level cache for the products in front and behind, through which their weights stream.
bool has_few_splits(const AttentionKernelArgs& args) { return args.num_splits <= 8 * args.num_chunks; }

template <class Cell>
Status choose_shape(const CudaContext& context, const AttentionKernelArgs& args, std::int32_t queries) {
  const bool is_small = mma_tile_rows(context, args.kv, queries) == 8;
  if (args.kv.head_dim == 256) {
    return is_small ? run<Cell, 256, 1, 2>(context, args, queries) : run<Cell, 256, 2, 2>(context, args, queries);
  }
  if (args.kv.head_dim == 64) {
    if (!is_small) return run<Cell, 64, 4, 2>(context, args, queries);
    return has_few_splits(args) ? run<Cell, 64, 1, 2>(context, args, queries)
                                : run<Cell, 64, 1, 4>(context, args, queries);
  }
  if (!is_small) return run<Cell, 128, 4, 2>(context, args, queries);
  const bool is_deep = !has_few_splits(args) && fits<128, 1, 3>(context);
  return is_deep ? run<Cell, 128, 1, 3>(context, args, queries) : run<Cell, 128, 1, 2>(context, args, queries);
}

}  // namespace

bool can_attend_mma(const CudaContext& context, const KvLayer& kv) {
  if (kv.dtype == DType::kF32) return false;
  if (kv.head_dim == 256) return fits<256, 1, 2>(context);
  if (kv.head_dim == 128) return fits<128, 1, 2>(context);
  return kv.head_dim == 64 && fits<64, 1, 4>(context);
}

std::int32_t mma_blocks(const KvLayer& kv) {
  if (kv.head_dim == 256) return Shared<256, 1, 2>::kBlocks;
  return kv.head_dim == 64 ? Shared<64, 1, 4>::kBlocks : Shared<128, 1, 3>::kBlocks;
}

std::int32_t mma_tile_rows(const CudaContext& context, const KvLayer& kv, std::int32_t queries) {
  if (queries <= 8) return 8;
  if (kv.head_dim == 256) return fits<256, 2, 2>(context) ? 16 : 8;
  return (kv.head_dim == 64 ? fits<64, 4, 2>(context) : fits<128, 4, 2>(context)) ? 32 : 8;
}

Status attend_mma(CudaContext& context, const AttentionKernelArgs& args, std::int32_t longest) {
  const std::int32_t queries = longest * (args.num_heads / args.kv.num_kv_heads);
  if (args.kv.dtype == DType::kBF16) return choose_shape<BF16Cell>(context, args, queries);
  return choose_shape<E4M3Cell>(context, args, queries);
}

}  // namespace vernier::cuda
