// The tensor-core instruction of the attention kernels and the registers that it wants: eight numbers of a key or value
// as bf16 pairs, and fp32 numbers as sums of bf16 terms.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "backend/cuda/ops/kv_page.cuh"

namespace vernier::cuda {

constexpr unsigned kWholeWarp = 0xFFFFFFFFU;

/// Eight neighbouring numbers as bf16; pairs[i] holds numbers 2i (low half) and 2i + 1.
struct Eight {
  std::uint32_t pairs[4];
};

__device__ inline std::uint32_t bf16_pair(float low, float high) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  return *reinterpret_cast<const std::uint32_t*>(&pair);
}

/// The two numbers rounded to bf16, side by side; what the rounding left replaces them. Three calls take all of an fp32
/// number: 8 significant bits each.
__device__ inline std::uint32_t take_term(float& low, float& high) {
  const std::uint32_t pair = bf16_pair(low, high);
  low -= __uint_as_float(__byte_perm(pair, 0, 0x1044));
  high -= __uint_as_float(__byte_perm(pair, 0, 0x3244));
  return pair;
}

__device__ inline Eight load_eight(const BF16Cell::Code* from) {
  const uint4 words = *reinterpret_cast<const uint4*>(from);
  return {{words.x, words.y, words.z, words.w}};
}

/// Each E4M3 number is a bf16 number, exactly.
__device__ inline std::uint32_t widen_pair(std::uint16_t codes) {
#if __CUDA_ARCH__ >= 890
  std::uint32_t halves = 0;
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"(codes));
  const float2 values = __half22float2(*reinterpret_cast<const __half2*>(&halves));
  return bf16_pair(values.x, values.y);
#else
  return bf16_pair(E4M3Codec::decode(static_cast<std::uint8_t>(codes)),
                   E4M3Codec::decode(static_cast<std::uint8_t>(codes >> 8)));
#endif
}

__device__ inline Eight load_eight(const E4M3Cell::Code* from) {
  const uint2 words = *reinterpret_cast<const uint2*>(from);
  return {{widen_pair(static_cast<std::uint16_t>(words.x)), widen_pair(static_cast<std::uint16_t>(words.x >> 16)),
           widen_pair(static_cast<std::uint16_t>(words.y)), widen_pair(static_cast<std::uint16_t>(words.y >> 16))}};
}

__device__ __forceinline__ std::uint32_t address_in_shared(const void* at) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(at));
}

/// Four matrices of 8 rows of 16 bytes; lane 8 i + r gives the address of row r of matrix i. Lane l gets of each the
/// two numbers 2 (l % 4) of row l / 4, or (kTransposed) the numbers l / 4 of rows 2 (l % 4) and one more.
template <bool kTransposed>
__device__ __forceinline__ uint4 load_matrices(std::uint32_t row) {
  uint4 out;
  if constexpr (kTransposed) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];\n"
                 : "=r"(out.x), "=r"(out.y), "=r"(out.z), "=r"(out.w)
                 : "r"(row)
                 : "memory");
  } else {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];\n"
                 : "=r"(out.x), "=r"(out.y), "=r"(out.z), "=r"(out.w)
                 : "r"(row)
                 : "memory");
  }
  return out;
}

/// sums += a b: mma.sync m16n8k16. Lane l holds of `a` rows l / 4 (x, z) and l / 4 + 8 (y, w), of `b` column l / 4, of
/// `sums` columns 2 (l % 4) and one more of row l / 4, then of row l / 4 + 8.
__device__ inline void multiply_add(float (&sums)[4], const uint4& a, std::uint32_t b0, std::uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b0), "r"(b1));
}

}  // namespace vernier::cuda
