// E4M3 codes to bf16 as ByteStage does it (stage.cuh), with as much work for the multiplier as for the integer pipe,
// which is what holds products up whose warps do little beside decoding.
#pragma once

#include "backend/cuda/fragment/stage.cuh"

namespace vernier::cuda {

/// The fragments of one unit from a lane's two pieces. Of half a word that holds a byte, 16 times it has the sign at
/// bit 11; ones added above carry it to bit 15. Told that it is 16, the compiler would shift, on the integer pipe.
__device__ __forceinline__ void decode_evenly(const uint4 (&pieces)[2], FragmentA (&out)[4]) {
  constexpr std::uint32_t kPower = 0x7B807B80;  // 2^120
  const std::uint32_t sixteen = 16 * blockDim.y;
  const auto widen = [sixteen](std::uint32_t bytes) __attribute__((always_inline)) {
    std::uint32_t moved = 0;
    asm("mad.lo.u32 %0, %1, %2, %3;\n" : "=r"(moved) : "r"(bytes), "r"(sixteen), "r"(0x78007800));
    return multiply_pair(moved & 0x87F087F0, kPower);
  };
#pragma unroll
  for (int fragment = 0; fragment < 4; ++fragment) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const std::uint32_t w = word_of(pieces[fragment / 2], fragment % 2 * 2 + half);
      out[fragment].word[half] = widen(w & 0x00FF00FF);
      out[fragment].word[half + 2] = widen(__byte_perm(w, 0, 0x4341));
    }
  }
}

}  // namespace vernier::cuda
