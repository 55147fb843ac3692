// Causal attention over paged keys and values: chooses kernel and work split, and folds what the splits left.
#include <algorithm>
#include <bit>
#include <limits>

#include "backend/cuda/ops/attention.h"
#include "backend/cuda/ops/math.cuh"
#include "backend/cuda/ops/ops.h"

namespace vernier::cuda {
namespace {

/// Beyond this the blocks fold their splits themselves: parallel enough by then, and it bounds the working memory.
constexpr std::size_t kMaxPartialBytes = std::size_t{256} << 20;
constexpr std::int32_t kAnyTokens = std::numeric_limits<std::int32_t>::max();
/// So many that the last block of a tile folds as quickly as a kernel of its own would begin.
constexpr std::int32_t kFewSplits = 16;
constexpr std::int32_t kFewWarpSplits = 32;  ///< the same where a warp has a row of the tile

constexpr int kFoldDims = 32;
constexpr int kFoldThreads = 256;  ///< splits at a time

/// What a block of fold_kernel exchanges.
struct FoldShared {
  /// Of each dimension the splits' numbers times their factors, and between rows what spreads them over the banks.
  float values[kFoldDims][kFoldThreads + 4];
  float first[kFoldThreads];  ///< FoldFactors of the splits
  float second[kFoldThreads];
  float totals[kFoldThreads];  ///< times their factors
  float largest[kFoldThreads / kWarpSize];
  float total;  ///< of all splits so far
};

/// The factors of kFoldThreads splits at once, a thread each: the largest scores so far need no order. `largest`: of
/// all splits in front; then of these too. Splits that aren't there leave sums as they are.
__device__ void find_factors(const SoftmaxState& own, bool is_there, FoldShared& shared, float& largest) {
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
  float so_far = own.largest;
#pragma unroll
  for (int offset = 1; offset < kWarpSize; offset *= 2) {
    const float other = __shfl_up_sync(0xFFFFFFFFU, so_far, offset);
    if (lane >= offset) so_far = fmaxf(so_far, other);
  }
  if (lane == kWarpSize - 1) shared.largest[warp] = so_far;
  __syncthreads();
  for (int w = 0; w < warp; ++w) largest = fmaxf(largest, shared.largest[w]);
  const float before = __shfl_up_sync(0xFFFFFFFFU, so_far, 1);
  const float old = lane == 0 ? largest : fmaxf(largest, before);
  so_far = fmaxf(largest, so_far);
  const float second = rescale(own.largest, so_far);
  shared.first[threadIdx.x] = is_there ? rescale(old, so_far) : 1.0F;
  shared.second[threadIdx.x] = second;
  shared.totals[threadIdx.x] = is_there ? __fmul_rn(own.total, second) : -0.0F;
  for (int w = warp; w < kFoldThreads / kWarpSize; ++w) largest = fmaxf(largest, shared.largest[w]);
}

/// fold_value() of `count` numbers (rounded up to fours) that have been multiplied.
__device__ __forceinline__ float fold_fours(float sum, const float* numbers, const float* first, std::int32_t count) {
#pragma unroll 4
  for (std::int32_t i = 0; i < count; i += 4) {
    const float4 next = *reinterpret_cast<const float4*>(numbers + i);
    const float4 factors = *reinterpret_cast<const float4*>(first + i);
    sum = __fmaf_rn(sum, factors.x, next.x);
    sum = __fmaf_rn(sum, factors.y, next.y);
    sum = __fmaf_rn(sum, factors.z, next.z);
    sum = __fmaf_rn(sum, factors.w, next.w);
  }
  return sum;
}

/// 32 numbers of y of one head of one token from the partial states of its splits, in their order.
__global__ void __launch_bounds__(kFoldThreads) fold_kernel(const __grid_constant__ AttentionKernelArgs args) {
  constexpr int kWarps = kFoldThreads / kWarpSize;
  constexpr int kFours = kFoldThreads / 4 / kWarps;  // splits that a thread takes, four side by side
  static_assert(kFoldDims == kWarpSize);
  __shared__ __align__(16) FoldShared shared;
  release_successor();
  const std::int64_t row = blockIdx.x;
  const auto head = static_cast<std::int32_t>(blockIdx.y);
  // No kernel writes the step's tables: they can be read before the wait.
  const std::int32_t slice_index = args.step.slice_of_row[row];
  const DeviceSlice slice = slice_index < 0 ? DeviceSlice{} : args.step.slices[slice_index];
  wait_for_predecessor();
  if (slice_index < 0 || !args.takes(slice)) return;
  const KeyRange keys = visible_keys(args, slice.past + static_cast<std::int32_t>(row) - slice.first_row);
  const std::int32_t dim = args.kv.head_dim;
  const int thread = static_cast<int>(threadIdx.x);
  const int own = thread % kWarpSize;
  const std::int32_t d = static_cast<std::int32_t>(blockIdx.z) * kFoldDims + own;
  const std::int32_t end = (keys.end - 1) / kSplitKeys + 1;
  float sum = 0.0F;
  SoftmaxState state = empty_state();
#pragma unroll 1
  for (std::int32_t first = keys.first / kSplitKeys; first < end; first += kFoldThreads) {
    const float* const from = partial_of(args, row, head, first);
    const std::int64_t stride = dim + kStateNumbers;
    const std::int32_t count = min(end - first, kFoldThreads);
    const float* const numbers = from + min(thread, count - 1) * stride + dim;
    SoftmaxState of_split = {__ldcg(numbers), __ldcg(numbers + 1)};
    if (thread >= count) of_split = empty_state();
    float values[kFours * 4];
#pragma unroll
    for (int i = 0; i < kFours * 4; ++i) {
      const int split = (i / 4 * kWarps + thread / kWarpSize) * 4 + i % 4;
      values[i] = split < count ? __ldcg(from + split * stride + min(d, dim - 1)) : 0.0F;
    }
    find_factors(of_split, thread < count, shared, state.largest);
    __syncthreads();
#pragma unroll
    for (int i = 0; i < kFours; ++i) {
      const int split = (i * kWarps + thread / kWarpSize) * 4;
      const float4 factors = *reinterpret_cast<const float4*>(shared.second + split);
      float4 four = {__fmul_rn(values[4 * i], factors.x), __fmul_rn(values[4 * i + 1], factors.y),
                     __fmul_rn(values[4 * i + 2], factors.z), __fmul_rn(values[4 * i + 3], factors.w)};
      if (split >= count) four.x = -0.0F;
      if (split + 1 >= count) four.y = -0.0F;
      if (split + 2 >= count) four.z = -0.0F;
      if (split + 3 >= count) four.w = -0.0F;
      *reinterpret_cast<float4*>(&shared.values[own][split]) = four;
    }
    __syncthreads();
    // A warp has the sums, the next one their total.
    if (thread < kFoldDims) {
      sum = fold_fours(sum, shared.values[thread], shared.first, count);
    } else if (thread == kFoldDims) {
      state.total = fold_fours(state.total, shared.totals, shared.first, count);
      shared.total = state.total;
    }
    __syncthreads();
  }
  if (thread >= kFoldDims || d >= dim) return;
  state.total = shared.total;
  args.y.data[row * args.y.stride + std::int64_t{head} * dim + d] = __fmul_rn(sum, finish(args, head, state));
}

/// The longest sequence and the longest share of one in a step, of slices of so many tokens.
struct Extent {
  std::int32_t positions = 0;
  std::int32_t tokens = 0;
  std::int64_t slices = 0;
};

Extent extent_of(std::span<const SequenceSlice> slices, std::int32_t least_tokens, std::int32_t most_tokens) {
  Extent extent;
  for (const SequenceSlice& slice : slices) {
    if (slice.num_tokens < least_tokens || slice.num_tokens > most_tokens) continue;
    extent.positions = std::max(extent.positions, slice.past + slice.num_tokens);
    extent.tokens = std::max(extent.tokens, slice.num_tokens);
    ++extent.slices;
  }
  return extent;
}

std::int32_t splits_of(const Extent& extent) {
  const std::int32_t splits = (extent.positions + kSplitKeys - 1) / kSplitKeys;
  return extent.tokens > 1 ? splits : static_cast<std::int32_t>(std::bit_ceil(static_cast<std::uint32_t>(splits)));
}

/// Splits of a tile's keys, at most.
std::int32_t seen_splits(const Extent& extent, const AttentionKernelArgs& args) {
  if (args.window <= 0) return args.num_splits;
  const std::int64_t keys = std::int64_t{args.window} + extent.tokens - 1;
  return static_cast<std::int32_t>(std::min<std::int64_t>(args.num_splits, (keys - 1) / kSplitKeys + 2));
}

/// In how many blocks to share the splits of each of `tiles` tiles, so that the device is done first: a block takes as
/// long as its splits and a little more.
std::int32_t choose_chunks(std::int64_t tiles, std::int64_t splits, std::int64_t blocks_at_once, std::int64_t most) {
  constexpr std::int64_t kStart = 2;  // splits that the beginning of a block is worth
  std::int64_t best = 1;
  std::int64_t least = 0;
  for (std::int64_t chunks = 1; chunks <= std::min(splits, most); ++chunks) {
    const std::int64_t share = (splits + chunks - 1) / chunks;
    if (chunks > 1 && share == (splits + chunks - 2) / (chunks - 1)) continue;
    const std::int64_t waves = (tiles * chunks + blocks_at_once - 1) / blocks_at_once;
    const std::int64_t cost = waves * (share + kStart) + (chunks > 1 ? kStart : 0);
    if (chunks == 1 || cost < least) {
      best = chunks;
      least = cost;
    }
    if (waves > 4) break;
  }
  return static_cast<std::int32_t>(best);
}

/// Gives the blocks that share a tile a place for what they find. Any plan gives the same bits.
Status plan_chunks(CudaContext& context, std::int64_t tiles, const Extent& extent, AttentionKernelArgs& args) {
  const std::size_t bytes = static_cast<std::size_t>(args.q.rows * args.num_heads) *
                            static_cast<std::size_t>(args.num_splits) *
                            static_cast<std::size_t>(args.kv.head_dim + kStateNumbers) * sizeof(float);
  if (bytes > kMaxPartialBytes) return {};
  const std::int64_t most = std::min<std::int64_t>(context.num_sms, 65535 / args.step.num_slices);
  const std::int64_t blocks = mma_blocks(args.kv) * std::int64_t{context.num_sms};
  args.num_chunks = choose_chunks(tiles, seen_splits(extent, args), blocks, most);
  if (args.num_chunks < 2) return {};
  VN_ASSIGN(void* partials, context.scratch.get(ScratchSlot::kAttentionPartials, bytes));
  args.partials = static_cast<float*>(partials);
  return {};
}

Status fold(const CudaContext& context, const AttentionKernelArgs& args) {
  if (args.partials == nullptr || args.arrivals != nullptr) return {};
  const dim3 grid(static_cast<unsigned>(args.q.rows), static_cast<unsigned>(args.num_heads),
                  static_cast<unsigned>((args.kv.head_dim + kFoldDims - 1) / kFoldDims));
  return launch(context, {grid, dim3(kFoldThreads)}, fold_kernel, args);
}

/// By mma.sync, the slices that `args` takes.
Status attend_few(CudaContext& context, std::span<const SequenceSlice> slices, AttentionKernelArgs args) {
  const Extent extent = extent_of(slices, args.least_tokens, args.most_tokens);
  if (extent.slices == 0) return {};
  args.num_splits = splits_of(extent);
  const std::int32_t queries = extent.tokens * (args.num_heads / args.kv.num_kv_heads);
  const std::int32_t rows = mma_tile_rows(context, args.kv, queries);
  const std::int64_t tiles_a_slice = std::int64_t{(queries + rows - 1) / rows} * args.kv.num_kv_heads;
  VN_TRY(plan_chunks(context, tiles_a_slice * extent.slices, extent, args));
  if (args.partials != nullptr && seen_splits(extent, args) <= kFewWarpSplits) {
    VN_ASSIGN(args.arrivals, context.scratch.counters(tiles_a_slice * args.step.num_slices));
  }
  VN_TRY(attend_mma(context, args, extent.tokens));
  return fold(context, args);
}

/// Heads wider than 256: blocks that share a tile have a split each.
Status attend_wide(CudaContext& context, const Extent& extent, AttentionKernelArgs args) {
  const std::int64_t queries = std::int64_t{extent.tokens} * (args.num_heads / args.kv.num_kv_heads);
  const std::int64_t tiles = (queries / 16 + 1) * args.kv.num_kv_heads;
  if (std::int64_t{args.step.num_slices} * args.num_splits < 65536) {
    VN_TRY(plan_chunks(context, tiles * extent.slices, extent, args));
  }
  if (args.partials != nullptr && seen_splits(extent, args) <= kFewSplits) {
    VN_ASSIGN(args.arrivals, context.scratch.counters(tiles * args.step.num_slices));
  }
  VN_TRY(attend_wide_head(context, args, extent.tokens));
  return fold(context, args);
}

/// Slices with at least so many tokens are for attend_async(): where its tiles of many rows are mostly full, and there
/// are enough of them or the sequences are short.
std::int32_t least_async_tokens(const CudaContext& context, std::span<const SequenceSlice> slices,
                                const AttentionKernelArgs& args) {
  const std::int32_t rows = async_tile_rows(args.kv);
  const std::int32_t group = args.num_heads / args.kv.num_kv_heads;
  const std::int32_t least = (rows / 2 + group - 1) / group + 1;
  std::int64_t tiles = 0;
  for (const SequenceSlice& slice : slices) {
    if (slice.num_tokens >= least) tiles += std::int64_t{(slice.num_tokens * group + rows - 1) / rows};
  }
  const Extent extent = extent_of(slices, least, kAnyTokens);
  const bool is_short = extent.positions <= 8 * kSplitKeys;
  return is_short || tiles * args.kv.num_kv_heads * 3 >= context.num_sms ? least : kAnyTokens;
}

}  // namespace

std::int32_t attention_splits(std::span<const SequenceSlice> slices) {
  return splits_of(extent_of(slices, 1, kAnyTokens));
}

Status attention(CudaContext& context, const AttentionArgs& args) {
  const KvLayer& kv = args.kv;
  if (kv.head_dim > kMaxHeadDim) {
    return fail(ErrorCode::kUnsupported, "cuda: attention: heads of {}; at most {}", kv.head_dim, kMaxHeadDim);
  }
  const bool scaled = kv.dtype == DType::kF8E4M3;
  const bool is_exact = context.precision == Precision::kF32;
  VN_ASSIGN(const StepView step, context.tables.step(args.slices, args.q.rows));
  const Extent extent = extent_of(args.slices, 1, kAnyTokens);
  if (extent.slices == 0) return {};
  const float scale = scaled ? args.scale * kv.key_scale : args.scale;
  AttentionKernelArgs kernel_args = {.q = args.q,
                                     .y = args.y,
                                     .num_heads = args.num_heads,
                                     .scale = args.soft_cap > 0.0F ? scale / args.soft_cap : scale,
                                     .exponent = args.soft_cap > 0.0F ? kLog2OfE : scale * kLog2OfE,
                                     .soft_cap = args.soft_cap,
                                     .window = args.window,
                                     .sinks = args.sinks.empty() ? nullptr : args.sinks.data(),
                                     .kv = kv,
                                     .value_scale = scaled ? kv.value_scale : 1.0F,
                                     .query_terms = is_exact ? 3 : 1,
                                     .weight_terms = is_exact ? 3 : 2,
                                     .step = step,
                                     .partials = nullptr,
                                     .num_splits = splits_of(extent),
                                     .num_chunks = 1,
                                     .least_tokens = 1,
                                     .most_tokens = kAnyTokens,
                                     .arrivals = nullptr};
  // Whether it's the tensor cores depends on the layer alone, never on the step.
  const bool is_wide = can_attend_wide_head(context, kv);
  if (is_wide && kernel_args.exponent > 0.0F) return attend_wide(context, extent, kernel_args);
  if (!can_attend_mma(context, kv) || !(kernel_args.exponent > 0.0F)) {
    VN_TRY(plan_chunks(context, args.q.rows * args.num_heads, extent, kernel_args));
    VN_TRY(attend_scalar(context, kernel_args));
    return fold(context, kernel_args);
  }
  if (is_exact || !can_attend_async(context, kv)) return attend_few(context, args.slices, kernel_args);
  const std::int32_t least = least_async_tokens(context, args.slices, kernel_args);
  AttentionKernelArgs many = kernel_args;
  many.least_tokens = least;
  const Extent long_extent = extent_of(args.slices, least, kAnyTokens);
  if (long_extent.slices > 0) VN_TRY(attend_async(context, many, long_extent.tokens));
  kernel_args.most_tokens = least - 1;
  return attend_few(context, args.slices, kernel_args);
}

}  // namespace vernier::cuda
