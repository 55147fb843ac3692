// Memory on its way from DRAM while a kernel still waits for its predecessor. Only into L2: what a kernel in front
// writes later is what loads then find.
#pragma once

#include <cuda_runtime.h>

namespace vernier::cuda {

/// kBytes from `address` on, which is a multiple of 16, as kBytes is.
template <int kBytes>
__device__ inline void prefetch_to_l2(const void* address) {
#if __CUDA_ARCH__ >= 900
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(address), "n"(kBytes));
#else
#pragma unroll
  for (int at = 0; at < kBytes; at += 128) {
    asm volatile("prefetch.global.L2 [%0];" ::"l"(static_cast<const char*>(address) + at));
  }
#endif
}

/// The line of `address`.
__device__ inline void prefetch_line(const void* address) { asm volatile("prefetch.global.L2 [%0];" ::"l"(address)); }

}  // namespace vernier::cuda
