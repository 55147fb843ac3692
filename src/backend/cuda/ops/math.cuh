// Scalar functions and warp reductions that several kernels share. Exponentials are the accurate ones: the fast forms
// lose what fp32 has beyond bf16.
#pragma once

#include <cuda_runtime.h>

#include "backend/backend.h"

namespace vernier::cuda {

constexpr int kWarpSize = 32;

__device__ inline float sigmoid(float x) { return 1.0F / (1.0F + expf(-x)); }
__device__ inline float silu(float x) { return x / (1.0F + expf(-x)); }

/// gate and up through the gated activation.
__device__ inline float activate(const ActivationSpec& spec, float gate, float up) {
  if (spec.kind == Activation::kSilu) return silu(gate) * up;
  if (spec.kind == Activation::kGeluTanh) {
    // 0.5 (1 + tanh u) = sigmoid(2u), which keeps its digits far below zero.
    const float inner = 1.5957691216057308F * gate * (1.0F + 0.044715F * gate * gate);
    return gate * sigmoid(inner) * up;
  }
  const float g = fminf(gate, spec.limit);
  const float u = fminf(fmaxf(up, -spec.limit), spec.limit);
  return g * sigmoid(spec.alpha * g) * (u + 1.0F);
}

/// The sum over the warp in every lane, always in the same order.
template <class T>
__device__ T warp_sum(T value) {
#pragma unroll
  for (int offset = kWarpSize / 2; offset > 0; offset /= 2) value += __shfl_xor_sync(0xFFFFFFFFU, value, offset);
  return value;
}

__device__ inline float warp_max(float value) {
#pragma unroll
  for (int offset = kWarpSize / 2; offset > 0; offset /= 2) {
    value = fmaxf(value, __shfl_xor_sync(0xFFFFFFFFU, value, offset));
  }
  return value;
}

}  // namespace vernier::cuda
