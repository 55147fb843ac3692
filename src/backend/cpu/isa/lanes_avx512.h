// 16 floats in one 512-bit register. The contract is that of lanes_portable.h. Needs AVX-512 F, BW, VL and DQ.
#pragma once

#include "backend/cpu/isa/codes_sse.h"

namespace {

struct Lanes {
  static constexpr int kTileRows = 4;
  static constexpr int kTileTokens = 4;
  static constexpr int kChains = 12;  ///< independent sums that hide the latency of fma()
  static constexpr const char* kName = "avx512";

  __m512 v;

  static Lanes all(float value) { return {_mm512_set1_ps(value)}; }
  static Lanes load(const float* from) { return {_mm512_loadu_ps(from)}; }
  static __mmask16 first_mask(std::int64_t count) { return static_cast<__mmask16>((1U << count) - 1U); }
  static Lanes load_first(const float* from, std::int64_t count) {
    return {_mm512_maskz_loadu_ps(first_mask(count), from)};
  }
  void store(float* to) const { _mm512_storeu_ps(to, v); }
  void store_first(float* to, std::int64_t count) const { _mm512_mask_storeu_ps(to, first_mask(count), v); }

  static Lanes load_bf16(const std::byte* from) {
    const __m256i codes = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
    return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(codes), 16))};
  }
  static Lanes load_f16(const std::byte* from) {
    return {_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)))};
  }
  static float half_to_float(std::uint16_t code) { return _cvtsh_ss(code); }
  static Lanes from_int8(Codes codes) { return {_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(codes.bytes))}; }
  static Lanes lookup16(const float* table, Codes codes) {
    return {_mm512_permutexvar_ps(_mm512_cvtepu8_epi32(codes.bytes), _mm512_loadu_ps(table))};
  }
  static Lanes lookup256(const float* table, Codes codes) {
    return {_mm512_i32gather_ps(_mm512_cvtepu8_epi32(codes.bytes), table, 4)};
  }

  friend Lanes operator+(Lanes a, Lanes b) { return {_mm512_add_ps(a.v, b.v)}; }
  friend Lanes operator-(Lanes a, Lanes b) { return {_mm512_sub_ps(a.v, b.v)}; }
  friend Lanes operator*(Lanes a, Lanes b) { return {_mm512_mul_ps(a.v, b.v)}; }
  friend Lanes operator/(Lanes a, Lanes b) { return {_mm512_div_ps(a.v, b.v)}; }
  static Lanes fma(Lanes a, Lanes b, Lanes c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
  // min and max return their second operand when either is NaN.
  static Lanes at_most(Lanes x, float bound) { return {_mm512_min_ps(_mm512_set1_ps(bound), x.v)}; }
  static Lanes at_least(Lanes x, float bound) { return {_mm512_max_ps(_mm512_set1_ps(bound), x.v)}; }
  static Lanes times_power_of_two(Lanes x, Lanes biased) {
    return {_mm512_scalef_ps(x.v, _mm512_sub_ps(biased.v, _mm512_set1_ps(0x1.8p23F)))};
  }
  static Lanes round_to_bf16(Lanes x) {
    const __m512i bits = _mm512_castps_si512(x.v);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    const __m512i rounded = _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7FFF)), odd);
    const __mmask16 is_nan = _mm512_cmp_ps_mask(x.v, x.v, _CMP_UNORD_Q);
    const __m512i result = _mm512_mask_or_epi32(rounded, is_nan, bits, _mm512_set1_epi32(0x400000));
    return {_mm512_castsi512_ps(_mm512_and_si512(result, _mm512_set1_epi32(-0x10000)))};
  }
  [[nodiscard]] float sum() const {
    const __m256 eight = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
    const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
  }
};

}  // namespace
