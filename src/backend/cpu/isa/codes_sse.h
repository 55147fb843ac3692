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
  [[nodiscard]] Codes with_bit4(std::uint16_t bits) const {
    // Each byte gets its half of the bits, keeps one of them, and compares.
    const __m128i spread =
        _mm_shuffle_epi8(_mm_cvtsi32_si128(bits), _mm_setr_epi8(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1));
    const __m128i own = _mm_set1_epi64x(static_cast<long long>(0x8040201008040201ULL));
    const __m128i is_set = _mm_cmpeq_epi8(_mm_and_si128(spread, own), own);
    return {_mm_or_si128(bytes, _mm_and_si128(is_set, _mm_set1_epi8(16)))};
  }

 private:
  static __m128i low_nibbles(__m128i x) { return _mm_and_si128(x, _mm_set1_epi8(15)); }
};

}  // namespace
