// 16 codes in one 128-bit register; used by the AVX2 and AVX-512 kernels. The contract is that of lanes_portable.h.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

namespace {

struct Codes {
  __m128i bytes;

  static Codes load_bytes(const std::byte* from) { return {_mm_loadu_si128(reinterpret_cast<const __m128i*>(from))}; }
  static Codes load_nibble_pairs(const std::byte* from) {
    const __m128i packed = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(from));
    return {low_nibbles(_mm_unpacklo_epi8(packed, _mm_srli_epi16(packed, 4)))};
  }
  static Codes load_nibble_halves(const std::byte* from) {
    const __m128i packed = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(from));
    return {low_nibbles(_mm_unpacklo_epi64(packed, _mm_srli_epi16(packed, 4)))};
  }
  static Codes load_low_nibbles(const std::byte* from) { return {low_nibbles(load_bytes(from).bytes)}; }
  static Codes load_high_nibbles(const std::byte* from) {
    return {low_nibbles(_mm_srli_epi16(load_bytes(from).bytes, 4))};
  }

 private:
  static __m128i low_nibbles(__m128i x) { return _mm_and_si128(x, _mm_set1_epi8(15)); }
};

}  // namespace
