// Causal attention over paged keys and values: chooses kernel and work split, and folds what the splits left.
#include <algorithm>
#include <bit>

#include "backend/cuda/ops/attention.h"
#include "backend/cuda/ops/ops.h"

namespace vernier::cuda {
namespace {

/// Beyond this the blocks fold their splits themselves: parallel enough by then, and it bounds the working memory.
constexpr std::size_t kMaxPartialBytes = std::size_t{256} << 20;
/// So many that the last block of a tile folds as quickly as a kernel of its own would begin.
constexpr std::int32_t kFewSplits = 16;

/// y of one head of one token from the partial states of its splits, in their order.
template <int kWidth>
__global__ void __launch_bounds__(kAttentionThreads) fold_kernel(const __grid_constant__ AttentionKernelArgs args) {
  release_successor();
  wait_for_predecessor();
  const std::int64_t row = blockIdx.x;
  const auto head = static_cast<std::int32_t>(blockIdx.y);
  const std::int32_t slice_index = args.step.slice_of_row[row];
  if (slice_index < 0) return;
  const DeviceSlice slice = args.step.slices[slice_index];
  const KeyRange keys = visible_keys(args, slice.past + static_cast<std::int32_t>(row) - slice.first_row);
  const std::int32_t dim = args.kv.head_dim;
  for (int d = static_cast<int>(threadIdx.x) * kWidth; d < dim; d += static_cast<int>(blockDim.x) * kWidth) {
    const Neighbours<kWidth> result = fold_splits<kWidth>(args, row, head, d, keys);
    float* const to = args.y.data + row * args.y.stride + std::int64_t{head} * dim + d;
#pragma unroll
    for (int k = 0; k < kWidth; ++k) to[k] = result.value[k];
  }
}

/// The longest sequence and the longest share of one in the step.
struct Extent {
  std::int32_t positions = 0;
  std::int32_t tokens = 0;
};

Extent extent_of(std::span<const SequenceSlice> slices) {
  Extent extent;
  for (const SequenceSlice& slice : slices) {
    if (slice.num_tokens == 0) continue;
    extent.positions = std::max(extent.positions, slice.past + slice.num_tokens);
    extent.tokens = std::max(extent.tokens, slice.num_tokens);
  }
  return extent;
}

/// Few blocks, or fewer than the multiprocessors can hold: one a split, which then need a place for what they found.
/// Either way gives the same bits.
Status plan_splits(CudaContext& context, std::int64_t num_blocks, AttentionKernelArgs& args) {
  const std::size_t bytes = static_cast<std::size_t>(args.q.rows * args.num_heads) *
                            static_cast<std::size_t>(args.num_splits) *
                            static_cast<std::size_t>(args.kv.head_dim + kStateNumbers) * sizeof(float);
  const bool few = num_blocks < 2 * std::int64_t{context.num_sms};
  const bool fits_grid = std::int64_t{args.step.num_slices} * args.num_splits < 65536;
  if (!few || !fits_grid || args.num_splits < 2 || bytes > kMaxPartialBytes) return {};
  VN_ASSIGN(void* partials, context.scratch.get(ScratchSlot::kAttentionPartials, bytes));
  args.partials = static_cast<float*>(partials);
  return {};
}

}  // namespace

std::int32_t attention_splits(std::span<const SequenceSlice> slices) {
  const Extent extent = extent_of(slices);
  const std::int32_t splits = (extent.positions + kSplitKeys - 1) / kSplitKeys;
  return extent.tokens > 1 ? splits : static_cast<std::int32_t>(std::bit_ceil(static_cast<std::uint32_t>(splits)));
}

Status attention(CudaContext& context, const AttentionArgs& args) {
  const KvLayer& kv = args.kv;
  if (kv.head_dim > kMaxHeadDim) {
    return fail(ErrorCode::kUnsupported, "cuda: attention: heads of {}; at most {}", kv.head_dim, kMaxHeadDim);
  }
  const bool scaled = kv.dtype == DType::kF8E4M3;
  VN_ASSIGN(const StepView step, context.tables.step(args.slices, args.q.rows));
  const Extent extent = extent_of(args.slices);
  if (extent.tokens == 0) return {};
  AttentionKernelArgs kernel_args = {.q = args.q,
                                     .y = args.y,
                                     .num_heads = args.num_heads,
                                     .scale = scaled ? args.scale * kv.key_scale : args.scale,
                                     .soft_cap = args.soft_cap,
                                     .window = args.window,
                                     .sinks = args.sinks.empty() ? nullptr : args.sinks.data(),
                                     .kv = kv,
                                     .value_scale = scaled ? kv.value_scale : 1.0F,
                                     .query_terms = context.precision == Precision::kF32 ? 3 : 1,
                                     .weight_terms = context.precision == Precision::kF32 ? 3 : 2,
                                     .step = step,
                                     .partials = nullptr,
                                     .num_splits = attention_splits(args.slices),
                                     .arrivals = nullptr};
  // Which kernel runs depends on the layer alone, never on the step.
  const bool is_wide = can_attend_wide_head(context, kv);
  if (is_wide || can_attend_mma(kv)) {
    const std::int64_t queries = args.q.rows * (args.num_heads / kv.num_kv_heads);
    VN_TRY(plan_splits(context, (queries / 32 + static_cast<std::int64_t>(args.slices.size())) * kv.num_kv_heads,
                       kernel_args));
    if (kernel_args.partials != nullptr && kernel_args.num_splits <= kFewSplits) {
      const std::int64_t tiles = std::int64_t{extent.tokens} * (args.num_heads / kv.num_kv_heads) / 16 + 1;
      VN_ASSIGN(kernel_args.arrivals, context.scratch.counters(tiles * kv.num_kv_heads * kernel_args.step.num_slices));
    }
    VN_TRY(is_wide ? attend_wide_head(context, kernel_args, extent.tokens)
                   : attend_mma(context, kernel_args, extent.tokens));
  } else {
    VN_TRY(plan_splits(context, args.q.rows * args.num_heads, kernel_args));
    VN_TRY(attend_scalar(context, kernel_args));
  }
  if (kernel_args.partials == nullptr || kernel_args.arrivals != nullptr) return {};
  const dim3 grid(static_cast<unsigned>(args.q.rows), static_cast<unsigned>(args.num_heads));
  if (kv.head_dim % 4 == 0) {
    const auto threads = static_cast<unsigned>((kv.head_dim / 4 + 31) / 32 * 32);
    return launch(context, {grid, dim3(threads)}, fold_kernel<4>, kernel_args);
  }
  return launch(context, {grid, dim3(kAttentionThreads)}, fold_kernel<1>, kernel_args);
}

}  // namespace vernier::cuda
