// The state of a softmax over some of the keys, and how two of them become one. Every attention kernel cuts a sequence
// at the same absolute positions (kSplitKeys), folds in the same order and rounds in the same places, so that a
// token's result depends neither on the other tokens of the step nor on how many blocks shared the work.
//
// Scores count in powers of two, since the device's exponential is one of two: exp(x) is 2^(x log2 e).
#pragma once

#include <cstdint>

#include "backend/backend.h"
#include "backend/cuda/ops/kv_page.cuh"

namespace vernier::cuda {

constexpr int kSplitKeys = 128;
constexpr int kStateNumbers = 4;  ///< behind a partial accumulator, so that each begins at a multiple of 16 bytes
constexpr int kAttentionWarps = 4;
constexpr int kAttentionThreads = kAttentionWarps * 32;

struct AttentionKernelArgs {
  MatrixView q;
  MatrixView y;
  std::int32_t num_heads;
  float scale;     ///< of raw scores where there is a cap: AttentionArgs::scale times the keys' scale over the cap
  float exponent;  ///< of scores that are finished: log2 e, times the scale where there is no cap
  float soft_cap;
  std::int32_t window;
  const float* sinks;  ///< [heads] or null
  KvLayer kv;
  float value_scale;
  std::int32_t query_terms;   ///< bf16 terms of a query: 1, which rounds it, or 3
  std::int32_t weight_terms;  ///< bf16 terms of a softmax weight, 2 or 3 (attend_mma)
  StepView step;
  /// [rows, heads, num_splits] of head_dim + kStateNumbers numbers (accumulator, largest, total, none), or null: each
  /// block folds all splits of its rows.
  float* partials;
  std::int32_t num_splits;
  std::int32_t num_chunks;  ///< blocks that share the splits of a tile
  /// A kernel leaves slices with fewer or more tokens alone.
  std::int32_t least_tokens;
  std::int32_t most_tokens;
  /// A zero for each tile of each KV head and slice: the last block of those that share one folds. Null: fold_kernel
  /// does.
  unsigned* arrivals;

  __device__ bool takes(const DeviceSlice& slice) const {
    return slice.num_tokens >= least_tokens && slice.num_tokens <= most_tokens;
  }
};
constexpr float kLog2OfE = 1.4426950408889634F;

/// 2^x, to 2 units in the last place; 0 where that is subnormal.
__device__ inline float power_of_two(float x) {
  float y = 0.0F;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

/// Largest score, sum of exponentials, and (elsewhere) the weighted sum of values. No key yet: -infinity, 0, 0.
struct SoftmaxState {
  float largest;
  float total;
};

__device__ inline SoftmaxState empty_state() { return {-INFINITY, 0.0F}; }

/// Factors of a pair of states whose larger maximum is `largest`. A state without keys has the factor 0 and adds
/// nothing, to the bit.
struct FoldFactors {
  float first;
  float second;
};

__device__ inline float rescale(float old_largest, float largest) {
  return old_largest == -INFINITY ? 0.0F : power_of_two(old_largest - largest);
}

__device__ inline FoldFactors fold(SoftmaxState& state, const SoftmaxState& next) {
  const float largest = fmaxf(state.largest, next.largest);
  const FoldFactors factors = {rescale(state.largest, largest), rescale(next.largest, largest)};
  state.total = __fmaf_rn(state.total, factors.first, __fmul_rn(next.total, factors.second));
  state.largest = largest;
  return factors;
}

/// One number of the weighted sums.
__device__ inline float fold_value(float value, float next, const FoldFactors& factors) {
  return __fmaf_rn(value, factors.first, __fmul_rn(next, factors.second));
}

/// Factor that makes the weighted sum the output: the sink joins the denominator alone.
__device__ inline float finish(const AttentionKernelArgs& args, std::int32_t head, const SoftmaxState& state) {
  float largest = state.largest;
  float sink = 0.0F;
  if (args.sinks != nullptr) {
    const float score = __fmul_rn(args.sinks[head], kLog2OfE);
    largest = fmaxf(largest, score);
    sink = power_of_two(score - largest);
  }
  const float factor = rescale(state.largest, largest);
  return __fdiv_rn(__fmul_rn(factor, args.value_scale), __fmaf_rn(state.total, factor, sink));
}

/// Times AttentionKernelArgs::exponent the number whose power of two is the weight.
__device__ inline float finish_score(const AttentionKernelArgs& args, float raw) {
  return args.soft_cap > 0.0F ? __fmul_rn(args.soft_cap, tanhf(__fmul_rn(raw, args.scale))) : raw;
}

/// What the weights of a split are relative to, from its largest score.
__device__ inline float largest_power(const AttentionKernelArgs& args, float largest_score) {
  return largest_score == -INFINITY ? -INFINITY : __fmul_rn(largest_score, args.exponent);
}
/// The weight of a score; -infinity, a key that isn't seen, gives 0. `largest` is finite.
__device__ inline float weight_of(const AttentionKernelArgs& args, float score, float largest) {
  return power_of_two(__fmaf_rn(score, args.exponent, -largest));
}

/// The keys that a token sees: positions [first, end).
struct KeyRange {
  std::int32_t first;
  std::int32_t end;
};

__device__ inline KeyRange visible_keys(const AttentionKernelArgs& args, std::int32_t position) {
  const std::int32_t first = args.window > 0 && position >= args.window ? position - args.window + 1 : 0;
  return {first, position + 1};
}

__device__ inline float* partial_of(const AttentionKernelArgs& args, std::int64_t row, std::int32_t head,
                                    std::int32_t split) {
  const std::int32_t state = (static_cast<std::int32_t>(row) * args.num_heads + head) * args.num_splits + split;
  return args.partials + std::int64_t{state} * (args.kv.head_dim + kStateNumbers);
}

/// Neighbouring numbers of a row.
template <int kWidth>
struct Neighbours {
  float value[kWidth];
};

/// kWidth dimensions from d on of y for one head of one token, from the partial states of its splits, in their order.
/// Other blocks of the same kernel may have written them.
template <int kWidth>
__device__ Neighbours<kWidth> fold_splits(const AttentionKernelArgs& args, std::int64_t row, std::int32_t head, int d,
                                          KeyRange keys) {
  constexpr int kAtOnce = 8;  // on their way together
  const std::int32_t dim = args.kv.head_dim;
  const std::int32_t last_split = (keys.end - 1) / kSplitKeys;
  Neighbours<kWidth> sums = {};
  SoftmaxState state = empty_state();
#pragma unroll 1
  for (std::int32_t split = keys.first / kSplitKeys; split <= last_split; split += kAtOnce) {
    SoftmaxState next[kAtOnce];
    Neighbours<kWidth> values[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const float* const from = partial_of(args, row, head, min(split + i, last_split));
      next[i] = {__ldcg(from + dim), __ldcg(from + dim + 1)};
      if constexpr (kWidth == 4) {
        const float4 four = __ldcg(reinterpret_cast<const float4*>(from + d));
        values[i] = {{four.x, four.y, four.z, four.w}};
      } else {
        values[i].value[0] = __ldcg(from + d);
      }
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      if (split + i > last_split) break;
      const FoldFactors factors = fold(state, next[i]);
#pragma unroll
      for (int k = 0; k < kWidth; ++k) sums.value[k] = fold_value(sums.value[k], values[i].value[k], factors);
    }
  }
  const float factor = finish(args, head, state);
#pragma unroll
  for (int k = 0; k < kWidth; ++k) sums.value[k] = __fmul_rn(sums.value[k], factor);
  return sums;
}

}  // namespace vernier::cuda
