// Barriers of a block at which some threads wait and others only pass by.
#pragma once

namespace vernier::cuda {

/// Barrier kFirst or kFirst + 1 of the block's: until so many threads have come to it, or passed by. (Numbers that the
/// compiler doesn't know would cost a block all sixteen barriers.)
template <int kFirst>
__device__ __forceinline__ void wait_at(int set, int threads) {
  if (set == 0) {
    asm volatile("bar.sync %0, %1;\n" ::"n"(kFirst), "r"(threads) : "memory");
  } else {
    asm volatile("bar.sync %0, %1;\n" ::"n"(kFirst + 1), "r"(threads) : "memory");
  }
}
template <int kFirst>
__device__ __forceinline__ void pass_by(int set, int threads) {
  if (set == 0) {
    asm volatile("bar.arrive %0, %1;\n" ::"n"(kFirst), "r"(threads) : "memory");
  } else {
    asm volatile("bar.arrive %0, %1;\n" ::"n"(kFirst + 1), "r"(threads) : "memory");
  }
}

}  // namespace vernier::cuda
