// Attention in plain fp32: the kernel for fp32 caches and for head widths that the tensor cores don't take. A block
// computes one head of one token; its warps share the keys, a key a lane for the scores, a dimension a lane for the
// values.
#include "backend/cuda/ops/attention.h"
#include "backend/cuda/ops/math.cuh"

namespace vernier::cuda {
namespace {

constexpr int kMaxPerLane = kMaxHeadDim / kWarpSize;
constexpr int kMaxPerThread = kMaxHeadDim / kAttentionThreads;

/// What a block works on.
struct Query {
  DeviceSlice slice;
  KeyRange keys;
  std::int32_t head;
  std::int32_t kv_head;
  const float* q;  ///< [head_dim] in shared memory
};

template <class Cell>
__device__ float raw_score(const AttentionKernelArgs& args, const Query& query, std::int32_t position) {
  const auto* const key = static_cast<const typename Cell::Code*>(args.kv.keys) +
                          kv_index(args.kv, args.step, query.slice, position, query.kv_head);
  float score = 0.0F;
#pragma unroll 8
  for (std::int32_t d = 0; d < args.kv.head_dim; ++d) score = __fmaf_rn(query.q[d], Cell::load(key[d]), score);
  return score;
}

/// Adds the 32 keys from `begin` on to the warp's state and sums; lane l holds dimensions l, l + 32, ...
template <class Cell>
__device__ void add_keys(const AttentionKernelArgs& args, const Query& query, std::int32_t begin, SoftmaxState& state,
                         float (&sums)[kMaxPerLane]) {
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const std::int32_t dim = args.kv.head_dim;
  const std::int32_t position = begin + lane;
  const bool visible = position >= query.keys.first && position < query.keys.end;
  const float score =
      visible ? __fmul_rn(finish_score(args, raw_score<Cell>(args, query, position)), args.exponent) : -INFINITY;
  const float largest = fmaxf(state.largest, warp_max(score));
  const float factor = rescale(state.largest, largest);
  const float weight = visible ? power_of_two(score - largest) : 0.0F;
  state.total = __fmaf_rn(state.total, factor, warp_sum(weight));
  state.largest = largest;
#pragma unroll
  for (int i = 0; i < kMaxPerLane; ++i) sums[i] = __fmul_rn(sums[i], factor);
  const int first = max(query.keys.first - begin, 0);
  const int end = min(query.keys.end - begin, kWarpSize);
  for (int j = first; j < end; ++j) {
    const float w = __shfl_sync(0xFFFFFFFFU, weight, j);
    const auto* const value = static_cast<const typename Cell::Code*>(args.kv.values) +
                              kv_index(args.kv, args.step, query.slice, begin + j, query.kv_head);
#pragma unroll
    for (int i = 0; i < kMaxPerLane; ++i) {
      const int d = lane + i * kWarpSize;
      if (d < dim) sums[i] = __fmaf_rn(w, Cell::load(value[d]), sums[i]);
    }
  }
}

/// The state of one split in every thread; the sums of dimensions threadIdx.x + i * kAttentionThreads in `out`.
template <class Cell>
__device__ SoftmaxState run_split(const AttentionKernelArgs& args, const Query& query, std::int32_t split,
                                  float* shared, float (&out)[kMaxPerThread]) {
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const std::int32_t dim = args.kv.head_dim;
  float sums[kMaxPerLane] = {};
  SoftmaxState state = empty_state();
  for (std::int32_t at = warp * kWarpSize; at < kSplitKeys; at += kAttentionThreads) {
    const std::int32_t begin = split * kSplitKeys + at;
    if (begin >= query.keys.end || begin + kWarpSize <= query.keys.first) continue;
    add_keys<Cell>(args, query, begin, state, sums);
  }
  float* const mine = shared + warp * (dim + 2);
#pragma unroll
  for (int i = 0; i < kMaxPerLane; ++i) {
    if (lane + i * kWarpSize < dim) mine[lane + i * kWarpSize] = sums[i];
  }
  if (lane == 0) mine[dim] = state.largest;
  if (lane == 0) mine[dim + 1] = state.total;
  __syncthreads();
  SoftmaxState folded = empty_state();
#pragma unroll
  for (int i = 0; i < kMaxPerThread; ++i) out[i] = 0.0F;
  for (int w = 0; w < kAttentionWarps; ++w) {
    const float* const from = shared + w * (dim + 2);
    const FoldFactors factors = fold(folded, {from[dim], from[dim + 1]});
#pragma unroll
    for (int i = 0; i < kMaxPerThread; ++i) {
      const int d = static_cast<int>(threadIdx.x) + i * kAttentionThreads;
      if (d < dim) out[i] = fold_value(out[i], from[d], factors);
    }
  }
  __syncthreads();
  return folded;
}

template <class Cell>
__global__ void __launch_bounds__(kAttentionThreads) scalar_kernel(const __grid_constant__ AttentionKernelArgs args) {
  release_successor();
  wait_for_predecessor();
  extern __shared__ float shared[];
  const std::int64_t row = blockIdx.x;
  const std::int32_t slice_index = args.step.slice_of_row[row];
  if (slice_index < 0) return;
  Query query = {};
  query.slice = args.step.slices[slice_index];
  query.head = static_cast<std::int32_t>(blockIdx.y);
  query.kv_head = query.head / (args.num_heads / args.kv.num_kv_heads);
  query.keys = visible_keys(args, query.slice.past + static_cast<std::int32_t>(row) - query.slice.first_row);
  const std::int32_t dim = args.kv.head_dim;
  for (int d = static_cast<int>(threadIdx.x); d < dim; d += kAttentionThreads) {
    const float value = args.q.data[row * args.q.stride + std::int64_t{query.head} * dim + d];
    shared[d] = args.query_terms == 1 ? BF16Codec::decode(BF16Codec::encode(value)) : value;
  }
  __syncthreads();
  query.q = shared;
  float* const work = shared + dim;
  const std::int32_t first_split = query.keys.first / kSplitKeys;
  const std::int32_t last_split = (query.keys.end - 1) / kSplitKeys;
  float out[kMaxPerThread];
  if (args.partials != nullptr) {
    const auto split = static_cast<std::int32_t>(blockIdx.z);
    if (split < first_split || split > last_split) return;
    const SoftmaxState state = run_split<Cell>(args, query, split, work, out);
    float* const to = partial_of(args, row, query.head, split);
#pragma unroll
    for (int i = 0; i < kMaxPerThread; ++i) {
      const int d = static_cast<int>(threadIdx.x) + i * kAttentionThreads;
      if (d < dim) to[d] = out[i];
    }
    if (threadIdx.x == 0) to[dim] = state.largest;
    if (threadIdx.x == 0) to[dim + 1] = state.total;
    return;
  }
  float sums[kMaxPerThread] = {};
  SoftmaxState state = empty_state();
  for (std::int32_t split = first_split; split <= last_split; ++split) {
    const SoftmaxState next = run_split<Cell>(args, query, split, work, out);
    const FoldFactors factors = fold(state, next);
#pragma unroll
    for (int i = 0; i < kMaxPerThread; ++i) sums[i] = fold_value(sums[i], out[i], factors);
  }
  const float factor = finish(args, query.head, state);
#pragma unroll
  for (int i = 0; i < kMaxPerThread; ++i) {
    const int d = static_cast<int>(threadIdx.x) + i * kAttentionThreads;
    if (d < dim) args.y.data[row * args.y.stride + std::int64_t{query.head} * dim + d] = __fmul_rn(sums[i], factor);
  }
}

}  // namespace

Status attend_scalar(CudaContext& context, const AttentionKernelArgs& args) {
  const unsigned splits = args.partials != nullptr ? static_cast<unsigned>(args.num_splits) : 1U;
  const std::size_t floats = static_cast<std::size_t>(args.kv.head_dim) * (kAttentionWarps + 1) + 2 * kAttentionWarps;
  const LaunchShape shape = {dim3(static_cast<unsigned>(args.q.rows), static_cast<unsigned>(args.num_heads), splits),
                             dim3(kAttentionThreads), floats * sizeof(float)};
  return visit_cell(args.kv, [&]<class Cell>(Cell) { return launch(context, shape, scalar_kernel<Cell>, args); });
}

}  // namespace vernier::cuda
