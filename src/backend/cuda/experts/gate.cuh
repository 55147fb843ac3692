// The gated activations in fp32, as backend.h defines them.
#pragma once

#include "backend/backend.h"

namespace vernier::cuda {

__device__ __forceinline__ float sigmoid(float x) { return 1.0F / (1.0F + expf(-x)); }

__device__ __forceinline__ float gated(const ActivationSpec& spec, float gate, float up) {
  switch (spec.kind) {
    case Activation::kSilu: return gate * sigmoid(gate) * up;
    case Activation::kGeluTanh: {
      constexpr float kRootOfTwoOverPi = 0.7978845608028654F;
      const float inner = kRootOfTwoOverPi * (gate + 0.044715F * gate * gate * gate);
      return 0.5F * gate * (1.0F + tanhf(inner)) * up;
    }
    case Activation::kClampedSwiglu: break;
  }
  const float g = gate > spec.limit ? spec.limit : gate;
  const float u = up > spec.limit ? spec.limit : up < -spec.limit ? -spec.limit : up;
  return g * sigmoid(spec.alpha * g) * (u + 1.0F);
}

}  // namespace vernier::cuda
