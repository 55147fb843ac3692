// Who of several blocks is the last, so that it goes on with what all have written.
#pragma once

#include <cuda_runtime.h>

namespace vernier::cuda {

/// Whether this block is the last of `count` to arrive, for all of its threads; it sees then what the others' threads
/// wrote before, and the counter is zero again.
__device__ inline bool arrives_last(unsigned* counter, unsigned count) {
  __shared__ bool is_last;
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) {
    is_last = atomicAdd(counter, 1U) == count - 1;
    if (is_last) *counter = 0;
  }
  __syncthreads();
  if (is_last) __threadfence();
  return is_last;
}

}  // namespace vernier::cuda
