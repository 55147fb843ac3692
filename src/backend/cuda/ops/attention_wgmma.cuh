// The forms of Hopper's tensor-core instruction that attention adds to those of fragment/wgmma.cuh: A in shared memory,
// and where B is rows of k. Only for code compiled for sm_90a.
#pragma once

#include "backend/cuda/fragment/wgmma.cuh"

namespace vernier::cuda {

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

/// B as 16 rows of 64 columns and, `bytes_to_next` on, the next 64; its rows lie as describe_b() has them. Add
/// kRowsStep for each 16 rows.
__device__ __forceinline__ std::uint64_t describe_rows(std::uint32_t rows, std::uint32_t bytes_to_next) {
  constexpr std::uint64_t kSwizzle128 = std::uint64_t{1} << 62;
  constexpr std::uint64_t kBetweenEightRows = std::uint64_t{1024 / 16} << 32;
  return rows / 16 | kSwizzle128 | kBetweenEightRows | std::uint64_t{bytes_to_next / 16} << 16;
}
constexpr int kRowsStep = 16 * 128 / 16;

/// What other threads' plain writes and copies left in shared memory can be read by the tensor cores from here on.
__device__ __forceinline__ void see_shared_writes() { asm volatile("fence.proxy.async.shared::cta;\n" ::: "memory"); }
/// Arrives when the copies that this thread has asked for are there.
__device__ __forceinline__ void arrive_when_copied(std::uint32_t barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];\n" ::"r"(barrier) : "memory");
}
__device__ __forceinline__ void arrive_here(std::uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];\n" ::"r"(barrier) : "memory");
}

/// sums = (keep ? sums : 0) + a * b, some time later; A as 64 rows that lie as those of B.
__device__ __forceinline__ void multiply_add_async(float (&sums)[64], std::uint64_t a, std::uint64_t b, int keep) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %66, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {" VN_PLACES_64 "}, %64, %65, p, 1, 1, 0, 0;\n}\n"
      : VN_SUMS_64(sums)
      : "l"(a), "l"(b), "r"(keep));
}

#endif

}  // namespace vernier::cuda
