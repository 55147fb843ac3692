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
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
      "}, %64, %65, p, 1, 1, 0, 0;\n}\n"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3]), "+f"(sums[4]), "+f"(sums[5]), "+f"(sums[6]),
        "+f"(sums[7]), "+f"(sums[8]), "+f"(sums[9]), "+f"(sums[10]), "+f"(sums[11]), "+f"(sums[12]), "+f"(sums[13]),
        "+f"(sums[14]), "+f"(sums[15]), "+f"(sums[16]), "+f"(sums[17]), "+f"(sums[18]), "+f"(sums[19]), "+f"(sums[20]),
        "+f"(sums[21]), "+f"(sums[22]), "+f"(sums[23]), "+f"(sums[24]), "+f"(sums[25]), "+f"(sums[26]), "+f"(sums[27]),
        "+f"(sums[28]), "+f"(sums[29]), "+f"(sums[30]), "+f"(sums[31]), "+f"(sums[32]), "+f"(sums[33]), "+f"(sums[34]),
        "+f"(sums[35]), "+f"(sums[36]), "+f"(sums[37]), "+f"(sums[38]), "+f"(sums[39]), "+f"(sums[40]), "+f"(sums[41]),
        "+f"(sums[42]), "+f"(sums[43]), "+f"(sums[44]), "+f"(sums[45]), "+f"(sums[46]), "+f"(sums[47]), "+f"(sums[48]),
        "+f"(sums[49]), "+f"(sums[50]), "+f"(sums[51]), "+f"(sums[52]), "+f"(sums[53]), "+f"(sums[54]), "+f"(sums[55]),
        "+f"(sums[56]), "+f"(sums[57]), "+f"(sums[58]), "+f"(sums[59]), "+f"(sums[60]), "+f"(sums[61]), "+f"(sums[62]),
        "+f"(sums[63])
      : "l"(a), "l"(b), "r"(keep));
}

#endif

}  // namespace vernier::cuda
