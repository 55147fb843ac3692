// Attention on tensor cores for bf16 and fp8 caches. Queries go in as one bf16 term or, not to be rounded, as three,
// weights of the softmax as two or three, so that products are those of fp32 numbers to 2^-17 or better; sums are fp32.
//
// Code size counts: a decode step runs through the kernel once a layer, and what isn't in the instruction cache by then
// is fetched from L2. So what runs once, or rarely, is not unrolled.
//
// A block takes a tile of 16 or 32 query rows, a row being one head of one token; the heads that share a KV head and
// neighbouring tokens lie side by side. The warps share the keys of a split: each takes runs of 32, and what they found
// is folded in the order of the warps. Keys and values come straight from the cache into the registers that the
// instruction wants: the order of the dimensions within a product and of the columns of its result are free, so each
// lane takes eight neighbouring numbers at a time.
#include "backend/cuda/arrivals.cuh"
#include "backend/cuda/ops/attention.h"
#include "backend/cuda/ops/attention_fragment.cuh"
#include "backend/cuda/ops/attention_tile.cuh"
#include "backend/cuda/ops/math.cuh"

namespace vernier::cuda {
namespace {

constexpr int kTileRows = 16;  ///< rows of an mma tile
constexpr int kRunTiles = kRunKeys / 8;
constexpr int kQueryTerms = 3;

/// Shared memory of a block.
template <int kDim, int kRowTiles>
struct Shared {
  static constexpr int kRows = kRowTiles * kTileRows;
  static constexpr int kStride = kDim + 4;  ///< spreads the rows over the banks
  uint4 query[kRowTiles][kDim / 16][kQueryTerms][kWarpSize];
  float partial[kAttentionWarps][kRows][kStride];
  float sums[kRows][kDim];
  SoftmaxState states[kAttentionWarps][kRows];
  FoldFactors factors[kRows][kAttentionWarps + 1];
  SoftmaxState running[kRows];  ///< of all splits so far
};

/// What a lane holds of the running softmax: of row tile i the rows lane / 4 and lane / 4 + 8.
template <int kDim, int kRowTiles>
struct Lane {
  float out[kRowTiles][kDim / 8][4];
  float largest[kRowTiles][2];
  float total[kRowTiles][2];  ///< of the lane's own columns
  KeyRange keys[kRowTiles][2];
};

template <int kDim, int kRowTiles>
__device__ void reset(Lane<kDim, kRowTiles>& lane) {
#pragma unroll
  for (int i = 0; i < kRowTiles; ++i) {
#pragma unroll
    for (int n = 0; n < kDim / 8; ++n) {
#pragma unroll
      for (int c = 0; c < 4; ++c) lane.out[i][n][c] = 0.0F;
    }
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      lane.largest[i][h] = -INFINITY;
      lane.total[i][h] = 0.0F;
    }
  }
}

/// Splits the tile's queries into bf16 terms, in the order in which lanes take them.
template <int kDim, int kRowTiles>
__device__ void load_queries(const AttentionKernelArgs& args, const Tile& tile, Shared<kDim, kRowTiles>& shared) {
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
#pragma unroll 1
  for (int item = warp; item < kRowTiles * kDim / 16; item += kAttentionWarps) {
    const int row_tile = item / (kDim / 16);
    const int step = item % (kDim / 16);
    float values[2][4];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int row = row_tile * kTileRows + lane / 4 + 8 * h;
      const float* from = nullptr;
      if (tile.holds(row)) {
        from = args.q.data + tile.matrix_row(row) * args.q.stride + std::int64_t{tile.head(row)} * kDim +
               step / 2 * 32 + lane % 4 * 8 + step % 2 * 4;
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) values[h][i] = from != nullptr ? from[i] : 0.0F;
    }
#pragma unroll
    for (int term = 0; term < kQueryTerms; ++term) {
      uint4& to = shared.query[row_tile][step][term][lane];
      to.x = take_term(values[0][0], values[0][1]);
      to.y = take_term(values[1][0], values[1][1]);
      to.z = take_term(values[0][2], values[0][3]);
      to.w = take_term(values[1][2], values[1][3]);
    }
  }
}

/// Raw scores of 32 keys. Lane l knows the cell of key l.
template <class Cell, int kDim, int kRowTiles>
__device__ void score_keys(const AttentionKernelArgs& args, const Shared<kDim, kRowTiles>& shared, std::int32_t cell,
                           float (&scores)[kRowTiles][kRunTiles][4]) {
  constexpr int kGroup = kDim < 128 ? kDim : 128;  // dimensions in flight
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const typename Cell::Code* key[kRunTiles];
#pragma unroll
  for (int n = 0; n < kRunTiles; ++n) {
    const std::int64_t row = __shfl_sync(kWholeWarp, cell, n * 8 + lane / 4);
    key[n] = static_cast<const typename Cell::Code*>(args.kv.keys) + row * kDim + lane % 4 * 8;
  }
#pragma unroll 1
  for (int first = 0; first < kDim; first += kGroup) {
    Eight loaded[kGroup / 32][kRunTiles];
#pragma unroll
    for (int c = 0; c < kGroup / 32; ++c) {
#pragma unroll
      for (int n = 0; n < kRunTiles; ++n) loaded[c][n] = load_eight(key[n] + first + 32 * c);
    }
#pragma unroll
    for (int c = 0; c < kGroup / 32; ++c) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
#pragma unroll
        for (int term = kQueryTerms - 1; term >= 0; --term) {  // small ones first
          if (term >= args.query_terms) continue;
#pragma unroll
          for (int i = 0; i < kRowTiles; ++i) {
            const uint4 query = shared.query[i][first / 16 + 2 * c + half][term][lane];
#pragma unroll
            for (int n = 0; n < kRunTiles; ++n) {
              multiply_add(scores[i][n], query, loaded[c][n].pairs[2 * half], loaded[c][n].pairs[2 * half + 1]);
            }
          }
        }
      }
    }
  }
}

/// Scales raw scores and caps them.
template <int kRowTiles>
__device__ void finish_scores(const AttentionKernelArgs& args, float (&scores)[kRowTiles][kRunTiles][4]) {
#pragma unroll
  for (int i = 0; i < kRowTiles * kRunTiles * 4; ++i) {
    float& score = scores[i / (kRunTiles * 4)][i / 4 % kRunTiles][i % 4];
    score = __fmul_rn(score, args.scale);
  }
  if (args.soft_cap <= 0.0F) return;  // code that isn't fetched costs nothing
#pragma unroll
  for (int i = 0; i < kRowTiles * kRunTiles * 4; ++i) {
    float& score = scores[i / (kRunTiles * 4)][i / 4 % kRunTiles][i % 4];
    score = cap_score(args, score);
  }
}

/// Scores become weights of the softmax, relative to the new maxima; sums so far are rescaled.
template <int kDim, int kRowTiles>
__device__ void weigh(const AttentionKernelArgs& args, std::int32_t begin, Lane<kDim, kRowTiles>& lane,
                      float (&scores)[kRowTiles][kRunTiles][4]) {
  const std::int32_t column = begin + static_cast<std::int32_t>(threadIdx.x) % 4 * 2;
#pragma unroll
  for (int i = 0; i < kRowTiles; ++i) {
    float factors[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float largest = -INFINITY;
#pragma unroll
      for (int n = 0; n < kRunTiles; ++n) {
#pragma unroll
        for (int c = 0; c < 2; ++c) {
          float& score = scores[i][n][2 * h + c];
          const std::int32_t position = column + 8 * n + c;
          const bool visible = position >= lane.keys[i][h].first && position < lane.keys[i][h].end;
          score = visible ? score : -INFINITY;
          largest = fmaxf(largest, score);
        }
      }
      largest = fmaxf(largest, __shfl_xor_sync(kWholeWarp, largest, 1));
      largest = fmaxf(largest, __shfl_xor_sync(kWholeWarp, largest, 2));
      largest = fmaxf(largest, lane.largest[i][h]);
      factors[h] = rescale(lane.largest[i][h], largest);
      lane.largest[i][h] = largest;
      float total = 0.0F;
#pragma unroll
      for (int n = 0; n < kRunTiles; ++n) {
#pragma unroll
        for (int c = 0; c < 2; ++c) {
          float& score = scores[i][n][2 * h + c];
          score = score == -INFINITY ? 0.0F : expf(score - largest);
          total = __fadd_rn(total, score);
        }
      }
      lane.total[i][h] = __fmaf_rn(lane.total[i][h], factors[h], total);
    }
    // Multiplying by one changes nothing, and most runs of keys leave all maxima as they are.
    if (__any_sync(kWholeWarp, factors[0] != 1.0F || factors[1] != 1.0F) == 0) continue;
#pragma unroll
    for (int n = 0; n < kDim / 8; ++n) {
#pragma unroll
      for (int c = 0; c < 4; ++c) lane.out[i][n][c] = __fmul_rn(lane.out[i][n][c], factors[c / 2]);
    }
  }
}

/// Adds weights times values of 32 keys.
template <class Cell, int kDim, int kRowTiles>
__device__ void add_values(const AttentionKernelArgs& args, std::int32_t cell, Lane<kDim, kRowTiles>& state,
                           float (&weights)[kRowTiles][kRunTiles][4]) {
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
#pragma unroll
  for (int pair = 0; pair < kRunTiles; pair += 2) {
    const typename Cell::Code* value[4];
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const std::int64_t row = __shfl_sync(kWholeWarp, cell, (pair + k / 2) * 8 + lane % 4 * 2 + k % 2);
      value[k] = static_cast<const typename Cell::Code*>(args.kv.values) + row * kDim + lane / 4 * 8;
    }
    Eight loaded[kDim / 64][4];
#pragma unroll
    for (int c = 0; c < kDim / 64; ++c) {
#pragma unroll
      for (int k = 0; k < 4; ++k) loaded[c][k] = load_eight(value[k] + 64 * c);
    }
    uint4 terms[kRowTiles][3];
#pragma unroll
    for (int i = 0; i < kRowTiles; ++i) {
      float* const first = weights[i][pair];
      float* const second = weights[i][pair + 1];
#pragma unroll
      for (int term = 0; term < 3; ++term) {
        terms[i][term].x = take_term(first[0], first[1]);
        terms[i][term].y = take_term(first[2], first[3]);
        terms[i][term].z = take_term(second[0], second[1]);
        terms[i][term].w = take_term(second[2], second[3]);
      }
    }
#pragma unroll
    for (int c = 0; c < kDim / 64; ++c) {
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        const std::uint32_t early = pair_of(loaded[c][0], loaded[c][1], j);
        const std::uint32_t late = pair_of(loaded[c][2], loaded[c][3], j);
#pragma unroll
        for (int i = 0; i < kRowTiles; ++i) {
          float(&out)[4] = state.out[i][c * 8 + j];
          if (args.weight_terms > 2) multiply_add(out, terms[i][2], early, late);
          multiply_add(out, terms[i][1], early, late);
          multiply_add(out, terms[i][0], early, late);
        }
      }
    }
  }
}

/// This warp's keys of a split.
template <class Cell, int kDim, int kRowTiles>
__device__ void run_warp(const AttentionKernelArgs& args, const Tile& tile, std::int32_t split,
                         const Shared<kDim, kRowTiles>& shared, Lane<kDim, kRowTiles>& state) {
  const auto warp = static_cast<std::int32_t>(threadIdx.x) / kWarpSize;
#pragma unroll 1
  for (std::int32_t at = warp * kRunKeys; at < kSplitKeys; at += kAttentionWarps * kRunKeys) {
    const std::int32_t begin = split * kSplitKeys + at;
    if (begin >= tile.keys.end || begin + kRunKeys <= tile.keys.first) continue;
    const std::int32_t cell = cell_of_run(args, tile, begin);
    float scores[kRowTiles][kRunTiles][4] = {};
    score_keys<Cell>(args, shared, cell, scores);
    finish_scores(args, scores);
    weigh(args, begin, state, scores);
    add_values<Cell>(args, cell, state, scores);
  }
}

/// The warps' states into shared memory.
template <int kDim, int kRowTiles>
__device__ void leave(Lane<kDim, kRowTiles>& state, Shared<kDim, kRowTiles>& shared) {
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
#pragma unroll
  for (int i = 0; i < kRowTiles; ++i) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float total = state.total[i][h];
      total += __shfl_xor_sync(kWholeWarp, total, 1);
      total += __shfl_xor_sync(kWholeWarp, total, 2);
      const int row = i * kTileRows + lane / 4 + 8 * h;
      if (lane % 4 == 0) shared.states[warp][row] = {state.largest[i][h], total};
#pragma unroll
      for (int c = 0; c < kDim / 64; ++c) {
        float* const to = shared.partial[warp][row] + 64 * c + lane % 4 * 16;
#pragma unroll
        for (int j = 0; j < 8; ++j) {
          to[j] = state.out[i][c * 8 + j][2 * h];
          to[8 + j] = state.out[i][c * 8 + j][2 * h + 1];
        }
      }
    }
  }
}

/// The factors with which the warps' sums, and then the split's, are folded. A thread a row.
template <int kDim, int kRowTiles>
__device__ SoftmaxState fold_states(Shared<kDim, kRowTiles>& shared, int row) {
  SoftmaxState folded = empty_state();
#pragma unroll
  for (int w = 0; w < kAttentionWarps; ++w) shared.factors[row][w] = fold(folded, shared.states[w][row]);
  shared.factors[row][kAttentionWarps] = fold(shared.running[row], folded);
  return folded;
}

/// Dimension d of a row of the split.
template <int kDim, int kRowTiles>
__device__ float fold_sums(const Shared<kDim, kRowTiles>& shared, int row, int d) {
  float sum = 0.0F;
#pragma unroll
  for (int w = 0; w < kAttentionWarps; ++w) sum = fold_value(sum, shared.partial[w][row][d], shared.factors[row][w]);
  return sum;
}

template <int kDim, int kRowTiles>
__device__ void write_partials(const AttentionKernelArgs& args, const Tile& tile, std::int32_t split,
                               Shared<kDim, kRowTiles>& shared) {
  constexpr int kRows = kRowTiles * kTileRows;
  const int thread = static_cast<int>(threadIdx.x);
  if (thread < kRows) {
    const SoftmaxState folded = fold_states(shared, thread);
    if (tile.holds(thread)) {
      float* const to = partial_of(args, tile.matrix_row(thread), tile.head(thread), split);
      to[kDim] = folded.largest;
      to[kDim + 1] = folded.total;
    }
  }
  __syncthreads();
#pragma unroll 1
  for (int i = thread; i < tile.rows(kRows) * kDim; i += kAttentionThreads) {
    const int row = i / kDim;
    partial_of(args, tile.matrix_row(row), tile.head(row), split)[i % kDim] = fold_sums(shared, row, i % kDim);
  }
}

/// y of the tile's rows from the partial states of all splits.
template <int kDim, int kRows>
__device__ void fold_tile(const AttentionKernelArgs& args, const Tile& tile) {
  constexpr int kWidth = 4;
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x); i < tile.rows(kRows) * (kDim / kWidth); i += kAttentionThreads) {
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

template <int kDim, int kRowTiles>
__device__ void add_split(const Tile& tile, Shared<kDim, kRowTiles>& shared) {
  constexpr int kRows = kRowTiles * kTileRows;
  const int thread = static_cast<int>(threadIdx.x);
  if (thread < kRows) (void)fold_states(shared, thread);
  __syncthreads();
#pragma unroll 1
  for (int i = thread; i < tile.rows(kRows) * kDim; i += kAttentionThreads) {
    const int row = i / kDim;
    float& sum = shared.sums[row][i % kDim];
    sum = fold_value(sum, fold_sums(shared, row, i % kDim), shared.factors[row][kAttentionWarps]);
  }
  __syncthreads();
}

template <class Cell, int kDim, int kRowTiles>
__global__ void __launch_bounds__(kAttentionThreads, kDim <= 128 ? 2 : 1)
    mma_kernel(const __grid_constant__ AttentionKernelArgs args) {
  release_successor();
  extern __shared__ uint4 memory[];
  auto& shared = *reinterpret_cast<Shared<kDim, kRowTiles>*>(memory);
  constexpr int kRows = kRowTiles * kTileRows;
  const auto splits = args.partials != nullptr ? args.num_splits : 1;
  // Late tiles see the most keys: they begin first.
  const Tile tile = make_tile<kRows>(args, static_cast<std::int32_t>(blockIdx.z) / splits,
                                     static_cast<std::int32_t>(gridDim.x - 1 - blockIdx.x));
  const std::int32_t first_split = tile.keys.first / kSplitKeys;
  const std::int32_t last_split = (tile.keys.end - 1) / kSplitKeys;
  const auto own_split = static_cast<std::int32_t>(blockIdx.z) % splits;
  const bool is_idle = tile.first_query >= tile.num_queries ||
                       (args.partials != nullptr && (own_split < first_split || own_split > last_split));
  // No kernel writes the step's tables: they can be read before the wait.
  if (!is_idle) prefetch_split<Cell, kDim>(args, tile, args.partials != nullptr ? own_split : first_split);
  wait_for_predecessor();
  if (is_idle) return;
  const int thread = static_cast<int>(threadIdx.x);
  load_queries(args, tile, shared);
  if (thread < kRows) shared.running[thread] = empty_state();
  for (int i = thread; i < kRows * kDim; i += kAttentionThreads) shared.sums[i / kDim][i % kDim] = 0.0F;
  Lane<kDim, kRowTiles> state;
#pragma unroll
  for (int i = 0; i < kRowTiles * 2; ++i) {
    const int row = i / 2 * kTileRows + thread % kWarpSize / 4 + 8 * (i % 2);
    KeyRange& keys = state.keys[i / 2][i % 2];
    keys = tile.holds(row) ? visible_keys(args, tile.slice.past + tile.token(row)) : KeyRange{0, 0};
  }
  __syncthreads();
  const std::int32_t begin = args.partials != nullptr ? own_split : first_split;
  const std::int32_t end = args.partials != nullptr ? own_split : last_split;
#pragma unroll 1
  for (std::int32_t split = begin; split <= end; ++split) {
    if (tile.slice.num_tokens == 1 && split < end) prefetch_split<Cell, kDim>(args, tile, split + 1);
    reset(state);
    run_warp<Cell>(args, tile, split, shared, state);
    leave(state, shared);
    __syncthreads();
    if (args.partials == nullptr) add_split(tile, shared);
  }
  if (args.partials != nullptr) {
    write_partials(args, tile, own_split, shared);
    if (args.arrivals == nullptr) return;
    const unsigned tile_number = (blockIdx.z / splits * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    if (!arrives_last(args.arrivals + tile_number, static_cast<unsigned>(last_split - first_split + 1))) return;
    fold_tile<kDim, kRows>(args, tile);
    return;
  }
#pragma unroll 1
  for (int i = thread; i < tile.rows(kRows) * kDim; i += kAttentionThreads) {
    const int row = i / kDim;
    const std::int32_t head = tile.head(row);
    args.y.data[tile.matrix_row(row) * args.y.stride + std::int64_t{head} * kDim + i % kDim] =
        __fmul_rn(shared.sums[row][i % kDim], finish(args, head, shared.running[row]));
  }
}

template <class Cell, int kDim, int kRowTiles>
Status run(const CudaContext& context, const AttentionKernelArgs& args, std::int32_t longest) {
  constexpr int kRows = kRowTiles * kTileRows;
  const std::int32_t queries = longest * (args.num_heads / args.kv.num_kv_heads);
  const std::int32_t splits = args.partials != nullptr ? args.num_splits : 1;
  const LaunchShape shape = {
      dim3(static_cast<unsigned>((queries + kRows - 1) / kRows), static_cast<unsigned>(args.kv.num_kv_heads),
           static_cast<unsigned>(args.step.num_slices * splits)),
      dim3(kAttentionThreads), sizeof(Shared<kDim, kRowTiles>)};
  return launch(context, shape, mma_kernel<Cell, kDim, kRowTiles>, args);
}

template <class Cell>
Status choose_dim(const CudaContext& context, const AttentionKernelArgs& args, std::int32_t longest) {
  const bool long_tile = longest * (args.num_heads / args.kv.num_kv_heads) > kTileRows;
  if (args.kv.head_dim == 256) return run<Cell, 256, 1>(context, args, longest);
  if (args.kv.head_dim == 64) {
    return long_tile ? run<Cell, 64, 2>(context, args, longest) : run<Cell, 64, 1>(context, args, longest);
  }
  return long_tile ? run<Cell, 128, 2>(context, args, longest) : run<Cell, 128, 1>(context, args, longest);
}

}  // namespace

bool can_attend_mma(const KvLayer& kv) {
  return kv.dtype != DType::kF32 && (kv.head_dim == 64 || kv.head_dim == 128 || kv.head_dim == 256);
}

Status attend_mma(CudaContext& context, const AttentionKernelArgs& args, std::int32_t longest) {
  if (args.kv.dtype == DType::kBF16) return choose_dim<BF16Cell>(context, args, longest);
  return choose_dim<E4M3Cell>(context, args, longest);
}

}  // namespace vernier::cuda
