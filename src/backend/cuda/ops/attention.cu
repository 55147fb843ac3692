// Causal attention over paged keys and values: chooses kernel and work split, and folds what the splits left.
#include <algorithm>

#include "backend/cuda/ops/attention.h"
#include "backend/cuda/ops/ops.h"

namespace vernier::cuda {
namespace {

/// Beyond this the blocks fold their splits themselves: parallel enough by then, and it bounds the working memory.
constexpr std::size_t kMaxPartialBytes = std::size_t{256} << 20;

/// y of one head of one token from the partial states of its splits, in their order.
__global__ void __launch_bounds__(kAttentionThreads) fold_kernel(const __grid_constant__ AttentionKernelArgs args) {
  const std::int64_t row = blockIdx.x;
  const auto head = static_cast<std::int32_t>(blockIdx.y);
  const std::int32_t slice_index = args.step.slice_of_row[row];
  if (slice_index < 0) return;
  const DeviceSlice slice = args.step.slices[slice_index];
  const KeyRange keys = visible_keys(args, slice.past + static_cast<std::int32_t>(row) - slice.first_row);
  const std::int32_t dim = args.kv.head_dim;
  const std::int32_t last_split = (keys.end - 1) / kSplitKeys;
  for (int d = static_cast<int>(threadIdx.x); d < dim; d += kAttentionThreads) {
    float sum = 0.0F;
    SoftmaxState state = empty_state();
#pragma unroll 4
    for (std::int32_t split = keys.first / kSplitKeys; split <= last_split; ++split) {
      const float* const from = partial_of(args, row, head, split);
      const FoldFactors factors = fold(state, {from[dim], from[dim + 1]});
      sum = fold_value(sum, from[d], factors);
    }
    args.y.data[row * args.y.stride + std::int64_t{head} * dim + d] = __fmul_rn(sum, finish(args, head, state));
  }
}

/// Splits that the longest sequence of the step needs.
std::int32_t max_splits(std::span<const SequenceSlice> slices) {
  std::int32_t positions = 0;
  for (const SequenceSlice& slice : slices) {
    if (slice.num_tokens > 0) positions = std::max(positions, slice.past + slice.num_tokens);
  }
  return (positions + kSplitKeys - 1) / kSplitKeys;
}

}  // namespace

Status attention(CudaContext& context, const AttentionArgs& args) {
  const KvLayer& kv = args.kv;
  if (kv.head_dim > kMaxHeadDim) {
    return fail(ErrorCode::kUnsupported, "cuda: attention: heads of {}; at most {}", kv.head_dim, kMaxHeadDim);
  }
  const bool scaled = kv.dtype == DType::kF8E4M3;
  VN_ASSIGN(const StepView step, context.tables.step(args.slices, args.q.rows));
  AttentionKernelArgs kernel_args = {.q = args.q,
                                     .y = args.y,
                                     .num_heads = args.num_heads,
                                     .scale = scaled ? args.scale * kv.key_scale : args.scale,
                                     .soft_cap = args.soft_cap,
                                     .window = args.window,
                                     .sinks = args.sinks.empty() ? nullptr : args.sinks.data(),
                                     .kv = kv,
                                     .value_scale = scaled ? kv.value_scale : 1.0F,
                                     .step = step,
                                     .partials = nullptr,
                                     .num_splits = max_splits(args.slices)};
  // Few blocks: one a split. Both ways give the same bits.
  const std::size_t heads = static_cast<std::size_t>(args.q.rows) * static_cast<std::size_t>(args.num_heads);
  const std::size_t partial_bytes = heads * static_cast<std::size_t>(kernel_args.num_splits) *
                                    static_cast<std::size_t>(kv.head_dim + 2) * sizeof(float);
  const bool few = heads < 4 * static_cast<std::size_t>(context.num_sms);
  if (few && kernel_args.num_splits > 1 && partial_bytes <= kMaxPartialBytes) {
    VN_ASSIGN(void* partials, context.scratch.get(ScratchSlot::kAttentionPartials, partial_bytes));
    kernel_args.partials = static_cast<float*>(partials);
  }
  VN_TRY(attend_scalar(context, kernel_args));
  if (kernel_args.partials == nullptr) return {};
  const LaunchShape shape = {dim3(static_cast<unsigned>(args.q.rows), static_cast<unsigned>(args.num_heads)),
                             dim3(kAttentionThreads)};
  return launch(context, shape, fold_kernel, kernel_args);
}

}  // namespace vernier::cuda
