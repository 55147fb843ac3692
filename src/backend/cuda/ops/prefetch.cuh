// Memory on its way from DRAM while a kernel still waits for its predecessor. Only into L2: what a kernel in front
// writes later is what loads then find.
#pragma once

#include <cuda_runtime.h>

namespace vernier::cuda {

/// The line of `address`.
__device__ inline void prefetch_line(const void* address) { asm volatile("prefetch.global.L2 [%0];" ::"l"(address)); }

}  // namespace vernier::cuda
