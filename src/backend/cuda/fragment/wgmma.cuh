// Hopper's tensor-core instruction of four warps, and what feeds it: bulk copies that a barrier in shared memory
// counts. Only for code compiled for sm_90a.
//
// A is m64k16 in registers: warp i of the four holds rows 16 i .. in the fragment of mma.cuh. B is n rows of 64
// columns in shared memory, 128 bytes a row, its pieces of 16 bytes permuted as swizzled_piece() says. Sums: of warp i
// rows 16 i + g (and + 8), of 8 columns each as mma.cuh has them. The results are those of mma.sync, to the bit.
#pragma once

#include <cstdint>

#include "backend/cuda/fragment/mma.cuh"

namespace vernier::cuda {

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

/// B at `rows`, whose address is a multiple of 1024; add kDescriptorStep for each 16 columns.
constexpr __device__ __forceinline__ std::uint64_t describe_b(std::uint32_t rows) {
  constexpr std::uint64_t kSwizzle128 = std::uint64_t{1} << 62;
  constexpr std::uint64_t kBetweenEightRows = std::uint64_t{1024 / 16} << 32;
  return (rows & 0x3FFFF) / 16 | kSwizzle128 | kBetweenEightRows | std::uint64_t{1} << 16;
}
constexpr int kDescriptorStep = 32 / 16;

/// Before the first multiply_add_async() after registers that it uses were written.
__device__ __forceinline__ void begin_async() { asm volatile("wgmma.fence.sync.aligned;\n" ::: "memory"); }
__device__ __forceinline__ void commit_async() { asm volatile("wgmma.commit_group.sync.aligned;\n" ::: "memory"); }
/// Keeps the compiler from moving what defines or uses sums past this place.
template <int kSums>
__device__ __forceinline__ void pin_sums(float (&sums)[kSums]) {
#pragma unroll
  for (int i = 0; i < kSums; ++i) asm volatile("" : "+f"(sums[i])::"memory");
}
/// Until all but the last kPending groups have been multiplied.
template <int kPending>
__device__ __forceinline__ void wait_async() {
  asm volatile("wgmma.wait_group.sync.aligned %0;\n" ::"n"(kPending) : "memory");
}

/// How B lies: n rows of 64 columns (describe_b), or 16 rows of k with their columns (describe_rows in
/// ops/attention_wgmma.cuh).
enum class LayoutB : int { kColumnsOfK = 0, kRowsOfK = 1 };

// What the instructions name: places 0 .. n - 1 of their operands, and the sums that are there.
#define VN_PLACES_16 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
#define VN_PLACES_32 VN_PLACES_16 ", %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define VN_PLACES_48 VN_PLACES_32 ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47"
#define VN_PLACES_64 VN_PLACES_48 ", %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define VN_PLACES_80 VN_PLACES_64 ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79"
#define VN_PLACES_96 VN_PLACES_80 ", %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"
#define VN_PLACES_112 \
  VN_PLACES_96 ", %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111"
#define VN_PLACES_128 \
  VN_PLACES_112 ", %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
#define VN_SUMS_4(s, i) "+f"(s[i]), "+f"(s[(i) + 1]), "+f"(s[(i) + 2]), "+f"(s[(i) + 3])
#define VN_SUMS_AT(s, i) VN_SUMS_4(s, i), VN_SUMS_4(s, (i) + 4), VN_SUMS_4(s, (i) + 8), VN_SUMS_4(s, (i) + 12)
#define VN_SUMS_16(s) VN_SUMS_AT(s, 0)
#define VN_SUMS_32(s) VN_SUMS_16(s), VN_SUMS_AT(s, 16)
#define VN_SUMS_48(s) VN_SUMS_32(s), VN_SUMS_AT(s, 32)
#define VN_SUMS_64(s) VN_SUMS_48(s), VN_SUMS_AT(s, 48)
#define VN_SUMS_128(s) VN_SUMS_64(s), VN_SUMS_AT(s, 64), VN_SUMS_AT(s, 80), VN_SUMS_AT(s, 96), VN_SUMS_AT(s, 112)

/// sums = (keep ? sums : 0) + a * b, some time later; all threads of the four warps.
__device__ __forceinline__ void multiply_add_async(float (&sums)[16], const FragmentA& a, std::uint64_t b, int keep) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %21, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 {" VN_PLACES_16
      "}, {%16, %17, %18, %19}, %20, p, 1, 1, 0;\n}\n"
      : VN_SUMS_16(sums)
      : "r"(a.word[0]), "r"(a.word[1]), "r"(a.word[2]), "r"(a.word[3]), "l"(b), "r"(keep));
}

template <LayoutB kLayout = LayoutB::kColumnsOfK>
__device__ __forceinline__ void multiply_add_async(float (&sums)[32], const FragmentA& a, std::uint64_t b, int keep) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %37, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" VN_PLACES_32
      "}, {%32, %33, %34, %35}, %36, p, 1, 1, %38;\n}\n"
      : VN_SUMS_32(sums)
      : "r"(a.word[0]), "r"(a.word[1]), "r"(a.word[2]), "r"(a.word[3]), "l"(b), "r"(keep),
        "n"(static_cast<int>(kLayout)));
}

__device__ __forceinline__ void multiply_add_async(float (&sums)[48], const FragmentA& a, std::uint64_t b, int keep) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %53, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n96k16.f32.bf16.bf16 {" VN_PLACES_48
      "}, {%48, %49, %50, %51}, %52, p, 1, 1, 0;\n}\n"
      : VN_SUMS_48(sums)
      : "r"(a.word[0]), "r"(a.word[1]), "r"(a.word[2]), "r"(a.word[3]), "l"(b), "r"(keep));
}

template <LayoutB kLayout = LayoutB::kColumnsOfK>
__device__ __forceinline__ void multiply_add_async(float (&sums)[64], const FragmentA& a, std::uint64_t b, int keep) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %69, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {" VN_PLACES_64
      "}, {%64, %65, %66, %67}, %68, p, 1, 1, %70;\n}\n"
      : VN_SUMS_64(sums)
      : "r"(a.word[0]), "r"(a.word[1]), "r"(a.word[2]), "r"(a.word[3]), "l"(b), "r"(keep),
        "n"(static_cast<int>(kLayout)));
}

__device__ __forceinline__ void multiply_add_async(float (&sums)[128], const FragmentA& a, std::uint64_t b, int keep) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %133, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 {" VN_PLACES_128
      "}, {%128, %129, %130, %131}, %132, p, 1, 1, 0;\n}\n"
      : VN_SUMS_128(sums)
      : "r"(a.word[0]), "r"(a.word[1]), "r"(a.word[2]), "r"(a.word[3]), "l"(b), "r"(keep));
}

/// A barrier in shared memory, by its address.
__device__ __forceinline__ void init_barrier(std::uint32_t barrier, unsigned arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;\n" ::"r"(barrier), "r"(arrivals));
}
/// Arrives and makes the phase wait for so many bytes of bulk copies.
__device__ __forceinline__ void arrive_expecting(std::uint32_t barrier, std::uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;\n" ::"r"(barrier), "r"(bytes) : "memory");
}
/// Arrives at the barrier of the cluster's block `rank` that lies where `barrier` does here. Orders this block's memory
/// alone (an order for the cluster's would wait for all of it): enough after reads of shared memory.
__device__ __forceinline__ void arrive_at(std::uint32_t barrier, unsigned rank) {
  asm volatile(
      "{\n.reg .b32 there;\nmapa.shared::cluster.u32 there, %0, %1;\n"
      "mbarrier.arrive.shared::cluster.b64 _, [there];\n}\n" ::"r"(barrier),
      "r"(rank)
      : "memory");
}
/// Until the phase of this parity has ended.
__device__ __forceinline__ void wait_for_phase(std::uint32_t barrier, unsigned parity) {
  asm volatile(
      "{\n.reg .pred done;\nAGAIN:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@done bra ENDED;\nbra AGAIN;\nENDED:\n}\n" ::"r"(barrier),
      "r"(parity)
      : "memory");
}

/// Copies to shared memory; the barrier counts the bytes.
__device__ __forceinline__ void bulk_copy(std::uint32_t to, const void* from, std::uint32_t bytes,
                                          std::uint32_t barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];\n" ::"r"(to),
               "l"(from), "r"(bytes), "r"(barrier)
               : "memory");
}
/// The same to every block of the cluster in `mask`, each at its own address `to` and barrier.
__device__ __forceinline__ void bulk_copy_to_all(std::uint32_t to, const void* from, std::uint32_t bytes,
                                                 std::uint32_t barrier, std::uint16_t mask) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1], %2, [%3], "
      "%4;\n" ::"r"(to),
      "l"(from), "r"(bytes), "r"(barrier), "h"(mask)
      : "memory");
}
__device__ __forceinline__ unsigned cluster_rank() {
  unsigned rank = 0;
  asm volatile("mov.u32 %0, %%cluster_ctarank;\n" : "=r"(rank));
  return rank;
}
/// All threads of all blocks of the cluster.
__device__ __forceinline__ void sync_cluster() {
  asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;\n" ::: "memory");
}

/// Registers a thread, from here on; all threads of four warps.
template <int kRegisters>
__device__ __forceinline__ void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;\n" ::"n"(kRegisters));
}
template <int kRegisters>
__device__ __forceinline__ void give_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;\n" ::"n"(kRegisters));
}

#endif

}  // namespace vernier::cuda
