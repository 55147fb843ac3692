// 16 codes in one 128-bit register; used by the AVX2 and AVX-512 kernels. The contract is that of lanes_portable.h.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

namespace {

/// E4M3 codes, sign-extended to 16 bits, as half-precision numbers that are 2^-8 of their value: exact, subnormals and
/// NaN included.
inline __m256i e4m3_to_f16(__m256i codes) {
  const __m256i shifted = _mm256_and_si256(_mm256_slli_epi16(codes, 7), _mm256_set1_epi16(static_cast<short>(0xBF80)));
  const __m256i nan = _mm256_set1_epi16(0x3F80);
  const __m256i is_nan = _mm256_cmpeq_epi16(_mm256_and_si256(shifted, nan), nan);
  return _mm256_or_si256(shifted, _mm256_and_si256(is_nan, _mm256_set1_epi16(0x7FFF)));
}

struct Codes {
  __m128i bytes;

  static Codes load_bytes(const std::byte* from) { return {_mm_loadu_si128(reinterpret_cast<const __m128i*>(from))}; }
  static Codes from_words(const std::uint64_t (&words)[2]) {
    return {_mm_set_epi64x(static_cast<long long>(words[1]), static_cast<long long>(words[0]))};
  }
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
  /// Codes below 16 with bits kAt and kAt + 1 of 16 bytes as their bits 4 and 5.
  template <int kAt>
  [[nodiscard]] Codes with_top_bits(const std::byte* from) const {
    __m128i bits = load_bytes(from).bytes;
    if constexpr (kAt < 4) bits = _mm_slli_epi16(bits, 4 - kAt);
    if constexpr (kAt > 4) bits = _mm_srli_epi16(bits, kAt - 4);
    return {_mm_or_si128(bytes, _mm_and_si128(bits, _mm_set1_epi8(0x30)))};
  }

 private:
  static __m128i low_nibbles(__m128i x) { return _mm_and_si128(x, _mm_set1_epi8(15)); }
};

}  // namespace
