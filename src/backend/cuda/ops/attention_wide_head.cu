// Attention on tensor cores for the head dimensions that attention_mma.cu doesn't take, above all for 512, where a warp
// can't hold the sums of its rows. Terms, sums and their order within a split are like there, but for one thing: all
// warps of a block have the same keys and each has its own dimensions, so that nothing is folded within a split.
#include <algorithm>

#include "backend/cuda/arrivals.cuh"
#include "backend/cuda/ops/attention.h"
#include "backend/cuda/ops/attention_wide_rows.cuh"

namespace vernier::cuda {
namespace {

/// Scores of the warp's rows and keys, from the dimensions of a piece.
template <class Shape>
__device__ void add_scores(const WideShared<Shape>& shared, const uint4* piece, int index,
                           float (&scores)[Shape::kWarpKeys / 8][4]) {
  constexpr int kTiles = Shape::kWarpKeys / 8;
  const int lane = lane_index();
  const int row_tile = warp_index() % Shape::kRowTiles;
  const int first_key = warp_index() / Shape::kRowTiles * Shape::kWarpKeys + lane / 4;
  const auto* const codes = reinterpret_cast<const typename Shape::Code*>(piece);
#pragma unroll
  for (int c = 0; c < Shape::kPieceDims / 32; ++c) {
    const int first = 32 * c + lane % 4 * 8;
    Eight loaded[kTiles];
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
      const int unit = key_unit<Shape>(first_key + 8 * n, first / Shape::kPerUnit);
      loaded[n] = load_eight(codes + unit * Shape::kPerUnit + first % Shape::kPerUnit);
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int step = index * (Shape::kPieceDims / 16) + 2 * c + half;
#pragma unroll
      for (int term = Shape::kQueryTerms - 1; term >= 0; --term) {  // small ones first
        const uint4 query = shared.query[row_tile][step][term][lane];
#pragma unroll
        for (int n = 0; n < kTiles; ++n) {
          multiply_add(scores[n], query, loaded[n].pairs[2 * half], loaded[n].pairs[2 * half + 1]);
        }
      }
    }
  }
}

/// Scales and caps raw scores, hides what a row doesn't see, and leaves each row's largest one.
template <class Shape>
__device__ void finish_scores(const AttentionKernelArgs& args, const Lane<Shape>& state, std::int32_t chunk,
                              WideShared<Shape>& shared, float (&scores)[Shape::kWarpKeys / 8][4]) {
  constexpr int kTiles = Shape::kWarpKeys / 8;
  const int lane = lane_index();
  const int key_warp = warp_index() / Shape::kRowTiles;
  const std::int32_t column = chunk * kChunkKeys + key_warp * Shape::kWarpKeys + lane % 4 * 2;
  if (args.soft_cap > 0.0F) {
#pragma unroll
    for (int i = 0; i < kTiles * 4; ++i) scores[i / 4][i % 4] = finish_score(args, scores[i / 4][i % 4]);
  }
#pragma unroll
  for (int i = 0; i < kTiles * 4; ++i) scores[i / 4][i % 4] = __fmul_rn(scores[i / 4][i % 4], args.exponent);
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    float largest = -INFINITY;
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
#pragma unroll
      for (int c = 0; c < 2; ++c) {
        float& score = scores[n][2 * h + c];
        const std::int32_t position = column + 8 * n + c;
        const bool visible = position >= state.keys[h].first && position < state.keys[h].end;
        score = visible ? score : -INFINITY;
        largest = fmaxf(largest, score);
      }
    }
    largest = fmaxf(largest, __shfl_xor_sync(kWholeWarp, largest, 1));
    largest = fmaxf(largest, __shfl_xor_sync(kWholeWarp, largest, 2));
    const int row = warp_index() % Shape::kRowTiles * 16 + lane / 4 + 8 * h;
    if (lane % 4 == 0) shared.largest[key_warp][row] = largest;
  }
}

/// The rows' new maxima, and sums so far relative to them.
template <class Shape>
__device__ void rescale_sums(const WideShared<Shape>& shared, Lane<Shape>& state) {
#pragma unroll
  for (int i = 0; i < Shape::kRowTiles; ++i) {
    float factors[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      SoftmaxState& split = state.split[i][h];
      float largest = split.largest;
#pragma unroll
      for (int w = 0; w < Shape::kKeyWarps; ++w) {
        largest = fmaxf(largest, shared.largest[w][i * 16 + lane_index() / 4 + 8 * h]);
      }
      factors[h] = rescale(split.largest, largest);
      split.largest = largest;
      split.total = __fmul_rn(split.total, factors[h]);
    }
    // Multiplying by one changes nothing, and most chunks leave all maxima as they are.
    if (__any_sync(kWholeWarp, factors[0] != 1.0F || factors[1] != 1.0F) == 0) continue;
#pragma unroll
    for (int n = 0; n < 8; ++n) {
#pragma unroll
      for (int c = 0; c < 4; ++c) state.out[i][n][c] = __fmul_rn(state.out[i][n][c], factors[c / 2]);
    }
  }
}

/// Scores become weights relative to the rows' maxima, for all warps to take.
template <class Shape>
__device__ void leave_weights(const Lane<Shape>& state, WideShared<Shape>& shared,
                              float (&scores)[Shape::kWarpKeys / 8][4]) {
  const int lane = lane_index();
  const int row_tile = warp_index() % Shape::kRowTiles;
  const int first_group = warp_index() / Shape::kRowTiles * (Shape::kWarpKeys / kGroupKeys);
  float largest[2] = {state.split[0][0].largest, state.split[0][1].largest};
#pragma unroll
  for (int i = 1; i < Shape::kRowTiles; ++i) {
#pragma unroll
    for (int h = 0; h < 2; ++h) largest[h] = row_tile == i ? state.split[i][h].largest : largest[h];
  }
#pragma unroll
  for (int group = 0; group < Shape::kWarpKeys / kGroupKeys; ++group) {
    float(&first)[4] = scores[2 * group];
    float(&second)[4] = scores[2 * group + 1];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float total = 0.0F;
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        float& score = c < 2 ? first[2 * h + c] : second[2 * h + c - 2];
        score = score == -INFINITY ? 0.0F : power_of_two(score - largest[h]);
        total = __fadd_rn(total, score);
      }
      total = __fadd_rn(total, __shfl_xor_sync(kWholeWarp, total, 1));
      total = __fadd_rn(total, __shfl_xor_sync(kWholeWarp, total, 2));
      if (lane % 4 == 0) shared.totals[row_tile * 16 + lane / 4 + 8 * h][first_group + group] = total;
    }
#pragma unroll
    for (int term = 0; term < Shape::kWeightTerms; ++term) {
      uint4& to = shared.weights[row_tile][first_group + group][term][lane];
      to.x = take_term(first[0], first[1]);
      to.y = take_term(first[2], first[3]);
      to.z = take_term(second[0], second[1]);
      to.w = take_term(second[2], second[3]);
    }
  }
}

template <class Shape>
__device__ void add_totals(const WideShared<Shape>& shared, Lane<Shape>& state) {
#pragma unroll
  for (int i = 0; i < Shape::kRowTiles * 2; ++i) {
    const float* const totals = shared.totals[i / 2 * 16 + lane_index() / 4 + i % 2 * 8];
    float& total = state.split[i / 2][i % 2].total;
#pragma unroll
    for (int group = 0; group < kChunkGroups; ++group) total = __fadd_rn(total, totals[group]);
  }
}

/// Adds weights times values for the warp's dimensions.
template <class Shape>
__device__ void add_values(const WideShared<Shape>& shared, const uint4* piece, int index, Lane<Shape>& state) {
  constexpr int kGroups = Shape::kValueKeys / kGroupKeys;
  const int lane = lane_index();
  const int first = warp_index() * 64 + lane / 4 * 8;
  const auto* const codes = reinterpret_cast<const typename Shape::Code*>(piece);
#pragma unroll
  for (int group = 0; group < kGroups; ++group) {
    Eight loaded[4];
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const int key = group * kGroupKeys + k / 2 * 8 + lane % 4 * 2 + k % 2;
      const int unit = value_unit<Shape>(key, first / Shape::kPerUnit);
      loaded[k] = load_eight(codes + unit * Shape::kPerUnit + first % Shape::kPerUnit);
    }
    uint4 weights[Shape::kRowTiles][Shape::kWeightTerms];
#pragma unroll
    for (int i = 0; i < Shape::kRowTiles; ++i) {
#pragma unroll
      for (int term = 0; term < Shape::kWeightTerms; ++term) {
        weights[i][term] = shared.weights[i][index * kGroups + group][term][lane];
      }
    }
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      const std::uint32_t early = join_numbers(loaded[0], loaded[1], j);
      const std::uint32_t late = join_numbers(loaded[2], loaded[3], j);
#pragma unroll
      for (int term = Shape::kWeightTerms - 1; term >= 0; --term) {
#pragma unroll
        for (int i = 0; i < Shape::kRowTiles; ++i) multiply_add(state.out[i][j], weights[i][term], early, late);
      }
    }
  }
}

/// The split's sums join those of the splits before.
template <class Shape>
__device__ void fold_split(Lane<Shape>& state) {
#pragma unroll
  for (int i = 0; i < Shape::kRowTiles; ++i) {
    FoldFactors factors[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) factors[h] = fold(state.running[i][h], state.split[i][h]);
#pragma unroll
    for (int n = 0; n < 8; ++n) {
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        state.sums[i][n][c] = fold_value(state.sums[i][n][c], state.out[i][n][c], factors[c / 2]);
      }
    }
  }
  reset_split(state);
}

/// The pieces of a block, in order: those of its chunks one after the other, without the values behind the last key.
struct Walk {
  std::int32_t first_chunk;
  std::int32_t num_pieces;
};

template <class Shape>
__device__ Walk make_walk(const Tile& tile, std::int32_t first_split, std::int32_t last_split) {
  constexpr std::int32_t kSplitChunks = kSplitKeys / kChunkKeys;
  const std::int32_t first = max(first_split * kSplitChunks, tile.keys.first / kChunkKeys);
  const std::int32_t end = min((last_split + 1) * kSplitKeys, tile.keys.end);
  const std::int32_t last = (end - 1) / kChunkKeys;
  const std::int32_t rest = end - last * kChunkKeys;
  return {first, (last - first) * Shape::kPieces + Shape::kKeyPieces + (rest - 1) / Shape::kValueKeys + 1};
}

/// All pieces of a block; ends with the last split's sums where they were added up.
template <class Shape>
__device__ void attend_pieces(const AttentionKernelArgs& args, const Tile& tile, const Walk& walk, int num_buffers,
                              WideShared<Shape>& shared, Lane<Shape>& state) {
  constexpr int kBufferUnits = Shape::kPieceBytes / kUnitBytes;
  constexpr std::int32_t kSplitChunks = kSplitKeys / kChunkKeys;
  auto* const ring = reinterpret_cast<uint4*>(&shared + 1);
  float scores[Shape::kWarpKeys / 8][4] = {};
  ThreadCells<Shape> found = {};
  int full = 0;
  int empty = 0;
#pragma unroll 1
  for (int at = 1 - num_buffers; at < walk.num_pieces; ++at) {
    if (at >= 0) {
      wait_for_requests(num_buffers - 2);
      __syncthreads();
    }
    const int next = at + num_buffers - 1;
    if (next < walk.num_pieces) {
      const std::int32_t chunk = walk.first_chunk + next / Shape::kPieces;
      request_piece<Shape>(args, shared.cells[chunk % 2], next % Shape::kPieces, ring + empty * kBufferUnits);
    }
    end_request();
    empty = empty + 1 == num_buffers ? 0 : empty + 1;
    if (at == -1) load_queries(args, shared);
    if (at < 0) continue;
    const uint4* const piece = ring + full * kBufferUnits;
    full = full + 1 == num_buffers ? 0 : full + 1;
    const std::int32_t chunk = walk.first_chunk + at / Shape::kPieces;
    const int index = at % Shape::kPieces;
    if (index == 0) found = find_cells<Shape>(args, tile, chunk + 1);  // on their way meanwhile
    if (index == 1) leave_cells<Shape>(found, shared.cells[(chunk + 1) % 2]);
    if (index < Shape::kKeyPieces) {
      add_scores(shared, piece, index, scores);
      if (index < Shape::kKeyPieces - 1) continue;
      finish_scores(args, state, chunk, shared, scores);
      __syncthreads();
      rescale_sums(shared, state);
      leave_weights(state, shared, scores);
#pragma unroll
      for (int i = 0; i < Shape::kWarpKeys / 2; ++i) scores[i / 4][i % 4] = 0.0F;
      continue;
    }
    if (index == Shape::kKeyPieces) add_totals(shared, state);
    add_values(shared, piece, index - Shape::kKeyPieces, state);
    const bool ends_split = index == Shape::kPieces - 1 && chunk % kSplitChunks == kSplitChunks - 1;
    if (args.partials == nullptr && (ends_split || at + 1 == walk.num_pieces)) fold_split(state);
  }
}

template <class Shape>
__global__ void __launch_bounds__(Shape::kThreads, Shape::kRowTiles == 1 && Shape::kQueryTerms == 1 ? 2 : 1)
    wide_head_kernel(const __grid_constant__ AttentionKernelArgs args, int num_buffers) {
  release_successor();
  extern __shared__ uint4 memory[];
  auto& shared = *reinterpret_cast<WideShared<Shape>*>(memory);
  const auto splits = args.partials != nullptr ? args.num_splits : 1;
  // Late tiles see the most keys: they begin first.
  const Tile tile =
      make_tile(args, static_cast<std::int32_t>(blockIdx.z) / splits, static_cast<std::int32_t>(blockIdx.y),
                Shape::kRows, static_cast<std::int32_t>(gridDim.x - 1 - blockIdx.x));
  const std::int32_t first_split = tile.keys.first / kSplitKeys;
  const std::int32_t last_split = (tile.keys.end - 1) / kSplitKeys;
  const auto own_split = static_cast<std::int32_t>(blockIdx.z) % splits;
  const bool is_idle = tile.first_query >= tile.num_queries ||
                       (args.partials != nullptr && (own_split < first_split || own_split > last_split));
  if (is_idle) {
    wait_for_predecessor();
    return;
  }
  const bool is_part = args.partials != nullptr;
  const Walk walk = make_walk<Shape>(tile, is_part ? own_split : first_split, is_part ? own_split : last_split);
  // No kernel writes the step's tables: they can be read before the wait.
  leave_cells<Shape>(find_cells<Shape>(args, tile, walk.first_chunk), shared.cells[walk.first_chunk % 2]);
  find_rows(args, tile, shared);
  wait_for_predecessor();
  __syncthreads();
  Lane<Shape> state;
  reset(shared, state);
  attend_pieces(args, tile, walk, num_buffers, shared, state);
  if (!is_part) {
    write_result(args, shared, state);
    return;
  }
  write_partials(args, shared, own_split, state);
  if (args.arrivals == nullptr) return;
  const unsigned tile_number = (blockIdx.z / splits * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
  if (!arrives_last(args.arrivals + tile_number, static_cast<unsigned>(last_split - first_split + 1))) return;
  fold_tile<Shape::kThreads>(args, tile, Shape::kRows);
}

/// Buffers of the ring, 2 or more where the shape fits: two blocks a multiprocessor where it can be.
template <class Shape>
int buffers_of(std::size_t max_shared_bytes) {
  const auto buffers = [](std::size_t bytes) {
    if (bytes < sizeof(WideShared<Shape>)) return 0;
    const std::size_t most = (bytes - sizeof(WideShared<Shape>)) / static_cast<std::size_t>(Shape::kPieceBytes);
    return static_cast<int>(std::min<std::size_t>(most, Shape::kMostBuffers));
  };
  constexpr std::size_t kReserved = 1024;  // of each block, by the driver
  const int half = Shape::kRowTiles == 1 ? buffers(max_shared_bytes / 2 - kReserved / 2) : 0;
  return half >= 2 ? half : buffers(max_shared_bytes);
}

template <class Shape>
Status run(const CudaContext& context, const AttentionKernelArgs& args, std::int32_t longest) {
  const std::int32_t queries = longest * (args.num_heads / args.kv.num_kv_heads);
  const std::int32_t splits = args.partials != nullptr ? args.num_splits : 1;
  const int buffers = buffers_of<Shape>(context.max_shared_bytes);
  const LaunchShape shape = {
      dim3(static_cast<unsigned>((queries + Shape::kRows - 1) / Shape::kRows),
           static_cast<unsigned>(args.kv.num_kv_heads), static_cast<unsigned>(args.step.num_slices * splits)),
      dim3(Shape::kThreads),
      sizeof(WideShared<Shape>) + static_cast<std::size_t>(buffers) * static_cast<std::size_t>(Shape::kPieceBytes)};
  return launch(context, shape, wide_head_kernel<Shape>, args, buffers);
}

template <class Cell, int kDim, int kTerms>
Status choose_tile(const CudaContext& context, const AttentionKernelArgs& args, std::int32_t longest) {
  if constexpr (kTerms == 1 && kDim == 512) {
    using Long = WideShape<Cell, kDim, 2, kTerms>;
    const bool fits = buffers_of<Long>(context.max_shared_bytes) >= 2;
    if (fits && longest * (args.num_heads / args.kv.num_kv_heads) > 16) return run<Long>(context, args, longest);
  }
  return run<WideShape<Cell, kDim, 1, kTerms>>(context, args, longest);
}

template <class Cell>
Status choose_terms(const CudaContext& context, const AttentionKernelArgs& args, std::int32_t longest) {
  if (args.query_terms == 1) return choose_tile<Cell, 512, 1>(context, args, longest);
  return choose_tile<Cell, 512, 3>(context, args, longest);
}

}  // namespace

bool can_attend_wide_head(const CudaContext& context, const KvLayer& kv) {
  using Widest = WideShape<BF16Cell, 512, 1, 3>;
  return kv.dtype != DType::kF32 && kv.head_dim > 256 && kv.head_dim <= 512 && kv.head_dim % 16 == 0 &&
         buffers_of<Widest>(context.max_shared_bytes) >= 2;
}

Status attend_wide_head(CudaContext& context, const AttentionKernelArgs& args, std::int32_t longest) {
  if (args.kv.dtype == DType::kBF16) return choose_terms<BF16Cell>(context, args, longest);
  return choose_terms<E4M3Cell>(context, args, longest);
}

}  // namespace vernier::cuda
