// The gated activations in fp32, as backend.h defines them: those of the operation, so that products that apply them
// give its bits.
#pragma once

#include "backend/cuda/ops/math.cuh"

namespace vernier::cuda {

__device__ __forceinline__ float gated(const ActivationSpec& spec, float gate, float up) {
  return activate(spec, gate, up);
}

}  // namespace vernier::cuda
