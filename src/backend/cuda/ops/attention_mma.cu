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
#include "backend/cuda/ops/attention_mma_split.cuh"
#include "backend/cuda/ops/attention_tile.cuh"
#include "backend/cuda/ops/math.cuh"

namespace vernier::cuda {
namespace {

template <int kDim, int kGroups>
using Shared = MmaShared<kDim, kGroups>;

template <int kDim, int kGroups>
using Sums = MmaSums<kDim, kGroups>;

/// Splits the tile's queries into bf16 terms, in the order in which lanes take them.
template <int kDim, int kGroups>
__device__ void load_queries(const AttentionKernelArgs& args, const Tile& tile, Shared<kDim, kGroups>& shared) {
  const int lane = lane_index();
#pragma unroll 1
  for (int item = warp_index(); item < kGroups * kDim / 16; item += Shared<kDim, kGroups>::kWarps) {
    const int group = item / (kDim / 16);
    const int step = item % (kDim / 16);
    const RowPlace place = shared.places[group * 8 + lane / 4];
    float values[4] = {};
    if (place.token >= 0) {
      const float* const from = args.q.data + std::int64_t{tile.slice.first_row + place.token} * args.q.stride +
                                place.head * kDim + step * 16 + lane % 4 * 2;
      values[0] = from[0];
      values[1] = from[1];
      values[2] = from[8];
      values[3] = from[9];
    }
#pragma unroll 1
    for (int term = 0; term < args.query_terms; ++term) {
      const std::uint32_t low = take_term(values[0], values[1]);
      shared.query[term][group][step][lane] = {low, take_term(values[2], values[3])};
    }
  }
}

/// Of the warp's key number lane of a split.
template <int kDim, int kGroups>
__device__ __forceinline__ KeyPlace own_place(const AttentionKernelArgs& args, const Tile& tile, std::int32_t split) {
  constexpr int kKeys = Shared<kDim, kGroups>::kWarpKeys;
  return place_of(args, tile, split * kSplitKeys + warp_index() * kKeys + lane_index() % kKeys);
}

/// Asks for the warp's share of the keys and values of the first split: each lane for all of one key, or for half of
/// it. Line by line: the instruction for more goes through the lanes one at a time.
template <class Cell, int kDim, int kGroups>
__device__ __forceinline__ void prefetch_split(const AttentionKernelArgs& args, std::int32_t cell) {
  constexpr int kKeys = Shared<kDim, kGroups>::kWarpKeys;
  constexpr int kLanes = kWarpSize / kKeys;  // of a key
  constexpr int kBytes = kDim * static_cast<int>(sizeof(typename Cell::Code));
  if (cell < 0) return;
  const std::int64_t first = std::int64_t{cell} * kBytes;
#pragma unroll
  for (int at = lane_index() / kKeys * 128; at < kBytes; at += kLanes * 128) {
    prefetch_line(static_cast<const char*>(args.kv.keys) + first + at);
    prefetch_line(static_cast<const char*>(args.kv.values) + first + at);
  }
}

/// Asks for the next tile, if there is one.
template <class Cell, int kDim, int kGroups>
__device__ __forceinline__ void ask(const AttentionKernelArgs& args, MmaWalk<kGroups>& walk) {
  using Memory = Shared<kDim, kGroups>;
  if (walk.split < walk.end) {
    copy_rows<Cell, kDim, kSplitKeys, Memory::kWarpKeys>(walk.step == 0 ? args.kv.keys : args.kv.values, walk.cell,
                                                         walk.fill, warp_index() * Memory::kWarpKeys);
    walk.step ^= 1;
    if (walk.step == 0) {
      ++walk.split;
      walk.cell = cell_of(args, walk.tile, walk.next_place);
      if (walk.split + 1 < walk.end) walk.next_place = own_place<kDim, kGroups>(args, walk.tile, walk.split + 1);
    }
    walk.fill += Memory::kTileBytes;
    if (walk.fill == walk.ring_end) walk.fill = walk.ring;
  }
}

/// What a thread has of sums: dimension of the result and row of the tile.
template <int kDim, int kGroups>
__device__ __forceinline__ int dim_of(int j, int i) {
  return (warp_index() * Shared<kDim, kGroups>::kDimTiles + j) * 16 + i / 2 * 8 + lane_index() / 4;
}
__device__ __forceinline__ int row_of(int group, int i) { return group * 8 + lane_index() % 4 * 2 + i % 2; }
/// A number of that row, from the lanes that have row lane / 4.
__device__ __forceinline__ float of_row(float value, int i) {
  return __shfl_sync(kWholeWarp, value, lane_index() % 4 * 8 + i % 2 * 4);
}

template <int kDim, int kGroups>
__device__ __forceinline__ void fold_split(const AttentionKernelArgs& args, MmaWalk<kGroups>& walk,
                                           const Shared<kDim, kGroups>& shared, const Sums<kDim, kGroups>& sums,
                                           Sums<kDim, kGroups>& totals) {
#pragma unroll
  for (int group = 0; group < kGroups; ++group) {
    const FoldFactors own = fold(walk.state[group], state_of(args, shared, group));
    const FoldFactors factors[2] = {{of_row(own.first, 0), of_row(own.second, 0)},
                                    {of_row(own.first, 1), of_row(own.second, 1)}};
#pragma unroll
    for (int i = 0; i < Shared<kDim, kGroups>::kDimTiles * 4; ++i) {
      float& total = totals[i / 4][group][i % 4];
      total = fold_value(total, sums[i / 4][group][i % 4], factors[i % 2]);
    }
  }
}

template <int kDim, int kGroups>
__device__ __forceinline__ void write_partials(const AttentionKernelArgs& args, const Tile& tile, std::int32_t split,
                                               const Shared<kDim, kGroups>& shared, const Sums<kDim, kGroups>& sums) {
#pragma unroll
  for (int group = 0; group < kGroups; ++group) {
    if (warp_index() == group % Shared<kDim, kGroups>::kWarps) {
      const SoftmaxState state = state_of(args, shared, group);
      const RowPlace place = shared.places[group * 8 + lane_index() / 4];
      if (lane_index() % 4 == 0 && place.token >= 0) {
        float* const to = partial_of(args, tile.slice.first_row + place.token, place.head, split) + kDim;
        to[0] = state.largest;
        to[1] = state.total;
      }
    }
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const RowPlace place = shared.places[row_of(group, h)];
      if (place.token < 0) continue;
      float* const to =
          partial_of(args, tile.slice.first_row + place.token, place.head, split) + dim_of<kDim, kGroups>(0, 0);
#pragma unroll
      for (int i = h; i < Shared<kDim, kGroups>::kDimTiles * 4; i += 2) {
        to[i / 4 * 16 + i / 2 % 2 * 8] = sums[i / 4][group][i % 4];
      }
    }
  }
}

template <int kDim, int kGroups>
__device__ __forceinline__ void write_result(const AttentionKernelArgs& args, const MmaWalk<kGroups>& walk,
                                             const Shared<kDim, kGroups>& shared, const Sums<kDim, kGroups>& totals) {
#pragma unroll
  for (int group = 0; group < kGroups; ++group) {
    const RowPlace own = shared.places[group * 8 + lane_index() / 4];
    const float factor = own.token >= 0 ? finish(args, own.head, walk.state[group]) : 0.0F;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float of_this = of_row(factor, h);
      const RowPlace place = shared.places[row_of(group, h)];
      if (place.token < 0) continue;
      float* const to = args.y.data + std::int64_t{walk.tile.slice.first_row + place.token} * args.y.stride +
                        place.head * kDim + dim_of<kDim, kGroups>(0, 0);
#pragma unroll
      for (int i = h; i < Shared<kDim, kGroups>::kDimTiles * 4; i += 2) {
        to[i / 4 * 16 + i / 2 % 2 * 8] = __fmul_rn(totals[i / 4][group][i % 4], of_this);
      }
    }
  }
}

/// One split: its keys are in the ring at `tile`; leaves its weights.
template <int kDim, int kGroups>
__device__ __forceinline__ void weigh_keys(const AttentionKernelArgs& args, const MmaWalk<kGroups>& walk,
                                           std::int32_t split, Shared<kDim, kGroups>& shared) {
  MmaScores<kDim, kGroups> scores = {};
  if (args.query_terms == 1) {
    score_keys<1>(shared, walk.read, scores);
  } else {
    score_keys<kMostTerms>(shared, walk.read, scores);
  }
  finish_scores(args, walk.tile, split, shared, scores);
  __syncthreads();
  weigh(args, shared, scores);
}

/// The tile of the block, and its share of the splits; whether there is something to do.
template <int kDim, int kGroups>
__device__ __forceinline__ bool find_share(const AttentionKernelArgs& args, MmaWalk<kGroups>& walk,
                                           unsigned& num_shares) {
  const auto slice = static_cast<std::int32_t>(blockIdx.z / static_cast<unsigned>(args.num_chunks));
  const std::int32_t chunk = static_cast<std::int32_t>(blockIdx.z) - slice * args.num_chunks;
  // Late tiles see the most keys: they begin first.
  walk.tile = make_tile(args, slice, static_cast<std::int32_t>(blockIdx.y), Shared<kDim, kGroups>::kRows,
                        static_cast<std::int32_t>(gridDim.x - 1 - blockIdx.x));
  const std::int32_t first = walk.tile.first_split();
  const std::int32_t last = walk.tile.last_split();
  const std::int32_t share = quotient(last - first + args.num_chunks, args.num_chunks);
  walk.split = first + chunk * share;
  walk.end = min(walk.split + share, last + 1);
  if (walk.tile.is_idle() || walk.split >= walk.end) return false;
  num_shares = args.arrivals == nullptr ? 0 : static_cast<unsigned>(quotient(last - first + share, share));
  return true;
}

template <class Cell, int kDim, int kGroups>
__global__ void __launch_bounds__(Shared<kDim, kGroups>::kThreads, Shared<kDim, kGroups>::kBlocks)
    mma_kernel(const __grid_constant__ AttentionKernelArgs args) {
  release_successor();
  extern __shared__ __align__(128) uint4 memory[];
  using Memory = Shared<kDim, kGroups>;
  auto& shared = *reinterpret_cast<Memory*>(memory);
  MmaWalk<kGroups> walk;
  unsigned num_shares = 0;
  const bool is_idle = !find_share<kDim, kGroups>(args, walk, num_shares);
  const Tile& tile = walk.tile;
  // No kernel writes the step's tables: they can be read before the wait.
  if (!is_idle) {
    walk.cell = cell_of(args, tile, own_place<kDim, kGroups>(args, tile, walk.split));
    prefetch_split<Cell, kDim, kGroups>(args, walk.cell);
    if (walk.split + 1 < walk.end) walk.next_place = own_place<kDim, kGroups>(args, tile, walk.split + 1);
    if (threadIdx.x < Memory::kRows) {
      const auto row = static_cast<std::int32_t>(threadIdx.x);
      RowPlace place = {-1, 0, tile.keys};
      if (tile.holds(row)) {
        place = {tile.token(row), tile.head(row), {}};
        place.keys = visible_keys(args, tile.slice.past + place.token);
      }
      shared.places[row] = place;
    }
    __syncthreads();
  }
  wait_for_predecessor();
  if (is_idle) return;
  walk.ring = address_in_shared(memory) + static_cast<std::uint32_t>(sizeof(Memory));
  walk.ring_end = walk.ring + static_cast<std::uint32_t>(Memory::kStages * Memory::kTileBytes);
  walk.fill = walk.read = walk.ring;
#pragma unroll
  for (int group = 0; group < kGroups; ++group) walk.state[group] = empty_state();
  Sums<kDim, kGroups> totals = {};
  const std::int32_t begin = walk.split;
  const std::int32_t tiles = (walk.end - begin) * 2;
  // Tiles are asked for one in advance. One place for all requests: their code is long.
#pragma unroll 1
  for (std::int32_t i = 1 - Memory::kStages; i < tiles; ++i) {
    if (i >= 0) {
      asm volatile("cp.async.wait_all;\n" ::: "memory");
      __syncthreads();
    }
    ask<Cell, kDim, kGroups>(args, walk);
    if (i < 0) {
      load_queries(args, tile, shared);
      continue;
    }
    const std::int32_t split = begin + i / 2;
    if (i % 2 == 0) {
      weigh_keys(args, walk, split, shared);
    } else {
      Sums<kDim, kGroups> sums = {};
      if (args.weight_terms == 2) {
        add_values<2>(shared, walk.read, sums);
      } else {
        add_values<kMostTerms>(shared, walk.read, sums);
      }
      if (args.partials != nullptr) {
        write_partials(args, tile, split, shared, sums);
      } else {
        fold_split(args, walk, shared, sums, totals);
      }
    }
    walk.read += Memory::kTileBytes;
    if (walk.read == walk.ring_end) walk.read = walk.ring;
  }
  if (args.partials == nullptr) return write_result(args, walk, shared, totals);
  if (num_shares == 0) return;
  const unsigned slice = blockIdx.z / static_cast<unsigned>(args.num_chunks);
  const unsigned number = (slice * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
  if (!arrives_last(args.arrivals + number, num_shares)) return;
#pragma unroll 1
  for (int row = warp_index(); row < Memory::kRows; row += Memory::kWarps) {
    const RowPlace place = shared.places[row];
    if (place.token < 0) continue;
    auto* const factors =
        reinterpret_cast<float4*>(&shared + 1) + warp_index() * kWarpSize;  // the ring is no longer used
    fold_row<kDim>(args, tile.slice.first_row + place.token, place, factors);
  }
}

template <class Cell, int kDim, int kGroups>
Status run(const CudaContext& context, const AttentionKernelArgs& args, std::int32_t queries) {
  using Memory = Shared<kDim, kGroups>;
  const LaunchShape shape = {
      dim3(static_cast<unsigned>((queries + Memory::kRows - 1) / Memory::kRows),
           static_cast<unsigned>(args.kv.num_kv_heads), static_cast<unsigned>(args.step.num_slices * args.num_chunks)),
      dim3(Memory::kThreads), Memory::bytes()};
  return launch(context, shape, mma_kernel<Cell, kDim, kGroups>, args);
}

/// Whether a block of that shape finds room: GPUs other than the large ones give it less shared memory.
template <int kDim, int kGroups>
bool fits(const CudaContext& context) {
  return Shared<kDim, kGroups>::bytes() <= context.max_shared_bytes;
}

template <class Cell>
Status choose_shape(const CudaContext& context, const AttentionKernelArgs& args, std::int32_t queries) {
  const bool is_small = mma_tile_rows(context, args.kv, queries) == 8;
  if (args.kv.head_dim == 256) {
    return is_small ? run<Cell, 256, 1>(context, args, queries) : run<Cell, 256, 2>(context, args, queries);
  }
  if (args.kv.head_dim == 64) {
    return is_small ? run<Cell, 64, 1>(context, args, queries) : run<Cell, 64, 4>(context, args, queries);
  }
  return is_small ? run<Cell, 128, 1>(context, args, queries) : run<Cell, 128, 4>(context, args, queries);
}

}  // namespace

bool can_attend_mma(const CudaContext& context, const KvLayer& kv) {
  if (kv.dtype == DType::kF32) return false;
  if (kv.head_dim == 256) return fits<256, 1>(context);
  if (kv.head_dim == 128) return fits<128, 1>(context);
  return kv.head_dim == 64 && fits<64, 1>(context);
}

std::int32_t mma_blocks(const KvLayer& kv) {
  if (kv.head_dim == 256) return Shared<256, 1>::kBlocks;
  return kv.head_dim == 64 ? Shared<64, 1>::kBlocks : Shared<128, 1>::kBlocks;
}

std::int32_t mma_tile_rows(const CudaContext& context, const KvLayer& kv, std::int32_t queries) {
  if (queries <= 8) return 8;
  if (kv.head_dim == 256) return fits<256, 2>(context) ? 16 : 8;
  return (kv.head_dim == 64 ? fits<64, 4>(context) : fits<128, 4>(context)) ? 32 : 8;
}

Status attend_mma(CudaContext& context, const AttentionKernelArgs& args, std::int32_t longest) {
  const std::int32_t queries = longest * (args.num_heads / args.kv.num_kv_heads);
  if (args.kv.dtype == DType::kBF16) return choose_shape<BF16Cell>(context, args, queries);
  return choose_shape<E4M3Cell>(context, args, queries);
}

}  // namespace vernier::cuda
