// The choice of experts from a token's logits, by one warp.
#pragma once

#include <climits>

#include "backend/cuda/experts/router.h"

namespace vernier::cuda {

/// Shared memory of a warp that chooses: logits, a bit an expert, set once it is taken, and those taken.
struct ChoiceMemory {
  float* logits;
  std::uint32_t* taken;
  std::int32_t* chosen;

  static __host__ __device__ int words(int experts, int top_k) { return experts + (experts + 31) / 32 + top_k; }
  static __device__ ChoiceMemory at(float* memory, int experts) {
    auto* const taken = reinterpret_cast<std::uint32_t*>(memory + experts);
    return {memory, taken, reinterpret_cast<std::int32_t*>(taken + (experts + 31) / 32)};
  }
};

namespace choice {

constexpr unsigned kAllLanes = 0xFFFFFFFFU;
constexpr int kWarp = 32;

/// The better of two candidates, each an expert and its logit: the larger logit, of equal ones the lower expert.
struct Candidate {
  float logit;
  int expert;
};
__device__ inline bool is_better(const Candidate& a, const Candidate& b) {
  if (b.expert < 0) return a.expert >= 0;
  return a.expert >= 0 && (a.logit > b.logit || (a.logit == b.logit && a.expert < b.expert));
}

/// What a scan in the order of experts ends with that moves on only to larger logits: the first expert left if its
/// logit is NaN, else the largest.
__device__ inline int choose_next(const ChoiceMemory& memory, int experts, int lane) {
  Candidate best = {0.0F, -1};
  int first = experts;
  for (int e = lane; e < experts; e += kWarp) {
    if ((memory.taken[e / 32] >> (e % 32) & 1U) != 0) continue;
    first = min(first, e);
    const Candidate own = {memory.logits[e], e};
    if (own.logit == own.logit && is_better(own, best)) best = own;
  }
  for (int step = kWarp / 2; step > 0; step /= 2) {
    const Candidate other = {__shfl_xor_sync(kAllLanes, best.logit, step),
                             __shfl_xor_sync(kAllLanes, best.expert, step)};
    if (is_better(other, best)) best = other;
    first = min(first, __shfl_xor_sync(kAllLanes, first, step));
  }
  const float first_logit = memory.logits[first];
  return first_logit != first_logit ? first : best.expert;
}

/// Any number of experts, any logits.
__device__ inline void choose_any(const ChoiceMemory& memory, int experts, int top_k, int lane) {
  for (int i = lane; i < (experts + 31) / 32; i += kWarp) memory.taken[i] = 0;
  __syncwarp();
  for (int j = 0; j < top_k; ++j) {
    const int best = choose_next(memory, experts, lane);
    __syncwarp();
    if (lane == 0) {
      memory.taken[best / 32] |= 1U << (best % 32);
      memory.chosen[j] = best;
    }
    __syncwarp();
  }
}

/// An integer in the order of numbers that are no NaN; both zeros are 0. INT_MIN stands for none.
__device__ inline int order_key(float value) {
  const int bits = __float_as_int(value);
  return bits >= 0 ? bits : INT_MIN - bits;
}

/// As choose_any() for kHeld * 32 experts at most, none with NaN: a lane holds experts lane, lane + 32, ...
template <int kHeld>
__device__ void choose_held(const ChoiceMemory& memory, int experts, int top_k, int lane) {
  int key[kHeld];
#pragma unroll
  for (int i = 0; i < kHeld; ++i) {
    const int e = lane + i * kWarp;
    key[i] = e < experts ? order_key(memory.logits[e]) : INT_MIN;
  }
#pragma unroll 1
  for (int j = 0; j < top_k; ++j) {
    int best = key[0];
    int at = 0;
#pragma unroll
    for (int i = 1; i < kHeld; ++i) {
      if (key[i] > best) at = i;
      best = max(best, key[i]);
    }
    const int largest = __reduce_max_sync(kAllLanes, best);
    const int own = best == largest ? lane + at * kWarp : INT_MAX;
    const int expert = __reduce_min_sync(kAllLanes, own);
#pragma unroll
    for (int i = 0; i < kHeld; ++i) {
      if (own == expert && at == i) key[i] = INT_MIN;
    }
    if (lane == 0) memory.chosen[j] = expert;
  }
  __syncwarp();
}

}  // namespace choice

/// Chooses for one token; load(e) is the logit of an expert.
template <class Load>
__device__ __forceinline__ void choose_from(const ChooseExperts& args, std::int64_t token, const ChoiceMemory& memory,
                                            const Load& load) {
  using choice::kAllLanes;
  using choice::kWarp;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  constexpr int kAtOnce = 8;  // on their way together
  bool has_nan = false;
#pragma unroll 1
  for (int begin = lane; begin < args.experts; begin += kWarp * kAtOnce) {
    float logits[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int e = begin + i * kWarp;
      logits[i] = e < args.experts ? load(e) : 0.0F;
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      if (begin + i * kWarp < args.experts) memory.logits[begin + i * kWarp] = logits[i];
      has_nan |= logits[i] != logits[i];
    }
  }
  __syncwarp();
  if (__any_sync(kAllLanes, has_nan) != 0 || args.experts > 16 * kWarp) {
    choice::choose_any(memory, args.experts, args.top_k, lane);
  } else if (args.experts <= 4 * kWarp) {
    choice::choose_held<4>(memory, args.experts, args.top_k, lane);
  } else if (args.experts <= 8 * kWarp) {
    choice::choose_held<8>(memory, args.experts, args.top_k, lane);
  } else {
    choice::choose_held<16>(memory, args.experts, args.top_k, lane);
  }
  const double largest = memory.logits[memory.chosen[0]];
  double total = 0.0;
  const int count = args.softmax_all ? args.experts : args.top_k;
#pragma unroll 1
  for (int i = lane; i < count; i += kWarp) {
    total += exp(double{memory.logits[args.softmax_all ? i : memory.chosen[i]]} - largest);
  }
  for (int step = kWarp / 2; step > 0; step /= 2) total += __shfl_xor_sync(kAllLanes, total, step);
#pragma unroll 1
  for (int j = lane; j < args.top_k; j += kWarp) {
    const int expert = memory.chosen[j];
    float weight = static_cast<float>(exp(double{memory.logits[expert]} - largest) / total);
    if (args.expert_scale != nullptr) weight = __fmul_rn(weight, args.expert_scale[expert]);
    args.ids[token * args.top_k + j] = expert;
    args.weights[token * args.top_k + j] = weight;
  }
  __syncwarp();
}

/// Chooses for one token, whose logits may have been written by other blocks of the same kernel.
__device__ inline void choose_for(const ChooseExperts& args, std::int64_t token, const ChoiceMemory& memory) {
  choose_from(args, token, memory, [&](int e) { return __ldcg(args.logits + token * args.experts + e); });
}

}  // namespace vernier::cuda
