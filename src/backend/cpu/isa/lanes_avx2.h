// 16 floats in two 256-bit registers. The contract is that of lanes_portable.h.
#pragma once

#include "backend/cpu/isa/codes_sse.h"

namespace {

struct Lanes {
  static constexpr int kTileRows = 2;
  static constexpr int kTileTokens = 2;
  static constexpr int kChains = 6;         ///< independent sums that hide the latency of fma()
  static constexpr int kAttentionRows = 3;  // with so many vectors of columns, sums fill the registers
  static constexpr int kAttentionVectors = 2;
  static constexpr const char* kName = "avx2";

  __m256 low;
  __m256 high;

  static Lanes all(float value) { return {_mm256_set1_ps(value), _mm256_set1_ps(value)}; }
  static Lanes load(const float* from) { return {_mm256_loadu_ps(from), _mm256_loadu_ps(from + 8)}; }
  static __m256i first_mask(std::int64_t count) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(count)), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  }
  static Lanes load_first(const float* from, std::int64_t count) {
    return {_mm256_maskload_ps(from, first_mask(count)),
            count > 8 ? _mm256_maskload_ps(from + 8, first_mask(count - 8)) : _mm256_setzero_ps()};
  }
  void store(float* to) const {
    _mm256_storeu_ps(to, low);
    _mm256_storeu_ps(to + 8, high);
  }
  void store_first(float* to, std::int64_t count) const {
    _mm256_maskstore_ps(to, first_mask(count), low);
    if (count > 8) _mm256_maskstore_ps(to + 8, first_mask(count - 8), high);
  }

  static __m128i load_128(const std::byte* from) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from)); }
  static __m256 widen_bf16(__m128i codes) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(codes), 16));
  }
  static Lanes load_bf16(const std::byte* from) {
    return {widen_bf16(load_128(from)), widen_bf16(load_128(from + 16))};
  }
  static Lanes load_f16(const std::byte* from) {
    return {_mm256_cvtph_ps(load_128(from)), _mm256_cvtph_ps(load_128(from + 16))};
  }
  static Lanes load_e4m3(const std::byte* from) {
    const __m256i halves = e4m3_to_f16(_mm256_cvtepi8_epi16(load_128(from)));
    const __m256 unit = _mm256_set1_ps(256.0F);
    return {_mm256_mul_ps(_mm256_cvtph_ps(_mm256_castsi256_si128(halves)), unit),
            _mm256_mul_ps(_mm256_cvtph_ps(_mm256_extracti128_si256(halves, 1)), unit)};
  }
  /// 64 bytes as they are.
  static Lanes load_words(const std::byte* from) {
    return {_mm256_castsi256_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from))),
            _mm256_castsi256_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + 32)))};
  }
  static __m256 low_bf16(__m256 words) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_castps_si256(words), 16));
  }
  static __m256 high_bf16(__m256 words) {
    return _mm256_and_ps(words, _mm256_castsi256_ps(_mm256_set1_epi32(-0x10000)));
  }
  static Lanes low_bf16(Lanes words) { return {low_bf16(words.low), low_bf16(words.high)}; }
  static Lanes high_bf16(Lanes words) { return {high_bf16(words.low), high_bf16(words.high)}; }
  static __m256 pair_bf16(__m256 low, __m256 high) {
    return _mm256_castsi256_ps(
        _mm256_blend_epi16(_mm256_srli_epi32(_mm256_castps_si256(low), 16), _mm256_castps_si256(high), 0xAA));
  }
  static Lanes pair_bf16(Lanes low, Lanes high) {
    return {pair_bf16(low.low, high.low), pair_bf16(low.high, high.high)};
  }
  static float half_to_float(std::uint16_t code) { return _cvtsh_ss(code); }
  static Lanes from_int8(Codes codes) {
    return {_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(codes.bytes)),
            _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128(codes.bytes, 8)))};
  }
  static __m256 lookup16(const float* table, __m256i index) {
    const __m256 below = _mm256_permutevar8x32_ps(_mm256_loadu_ps(table), index);
    const __m256 above = _mm256_permutevar8x32_ps(_mm256_loadu_ps(table + 8), index);
    return _mm256_blendv_ps(below, above, _mm256_castsi256_ps(_mm256_slli_epi32(index, 28)));
  }
  static Lanes lookup16(const float* table, Codes codes) {
    return {lookup16(table, _mm256_cvtepu8_epi32(codes.bytes)),
            lookup16(table, _mm256_cvtepu8_epi32(_mm_srli_si128(codes.bytes, 8)))};
  }
  static Lanes lookup256(const float* table, Codes codes) {
    return {_mm256_i32gather_ps(table, _mm256_cvtepu8_epi32(codes.bytes), 4),
            _mm256_i32gather_ps(table, _mm256_cvtepu8_epi32(_mm_srli_si128(codes.bytes, 8)), 4)};
  }

  friend Lanes operator+(Lanes a, Lanes b) { return {_mm256_add_ps(a.low, b.low), _mm256_add_ps(a.high, b.high)}; }
  friend Lanes operator-(Lanes a, Lanes b) { return {_mm256_sub_ps(a.low, b.low), _mm256_sub_ps(a.high, b.high)}; }
  friend Lanes operator*(Lanes a, Lanes b) { return {_mm256_mul_ps(a.low, b.low), _mm256_mul_ps(a.high, b.high)}; }
  friend Lanes operator/(Lanes a, Lanes b) { return {_mm256_div_ps(a.low, b.low), _mm256_div_ps(a.high, b.high)}; }
  static Lanes fma(Lanes a, Lanes b, Lanes c) {
    return {_mm256_fmadd_ps(a.low, b.low, c.low), _mm256_fmadd_ps(a.high, b.high, c.high)};
  }
  // min and max return their second operand when either is NaN.
  static Lanes at_most(Lanes x, float bound) {
    const __m256 b = _mm256_set1_ps(bound);
    return {_mm256_min_ps(b, x.low), _mm256_min_ps(b, x.high)};
  }
  static Lanes at_least(Lanes x, float bound) {
    const __m256 b = _mm256_set1_ps(bound);
    return {_mm256_max_ps(b, x.low), _mm256_max_ps(b, x.high)};
  }
  static Lanes largest(Lanes a, Lanes b) { return {_mm256_max_ps(a.low, b.low), _mm256_max_ps(a.high, b.high)}; }
  static Lanes magnitude(Lanes x) {
    const __m256 sign = _mm256_set1_ps(-0.0F);
    return {_mm256_andnot_ps(sign, x.low), _mm256_andnot_ps(sign, x.high)};
  }
  static Lanes select_less(Lanes x, float bound, Lanes yes, Lanes no) {
    const __m256 b = _mm256_set1_ps(bound);
    return {_mm256_blendv_ps(no.low, yes.low, _mm256_cmp_ps(x.low, b, _CMP_LT_OQ)),
            _mm256_blendv_ps(no.high, yes.high, _mm256_cmp_ps(x.high, b, _CMP_LT_OQ))};
  }
  static Lanes keep_first(Lanes x, std::int64_t count, float fill) {
    const __m256 f = _mm256_set1_ps(fill);
    return {_mm256_blendv_ps(f, x.low, _mm256_castsi256_ps(first_mask(count))),
            _mm256_blendv_ps(f, x.high, _mm256_castsi256_ps(first_mask(count - 8)))};
  }
  static __m256 power_of_two(__m256i exponent) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(exponent, _mm256_set1_epi32(127)), 23));
  }
  static __m256 times_power_of_two(__m256 x, __m256 biased) {
    const __m256i n = _mm256_sub_epi32(_mm256_castps_si256(biased), _mm256_set1_epi32(0x4B400000));
    const __m256i half = _mm256_srai_epi32(n, 1);
    return _mm256_mul_ps(_mm256_mul_ps(x, power_of_two(half)), power_of_two(_mm256_sub_epi32(n, half)));
  }
  static Lanes times_power_of_two(Lanes x, Lanes biased) {
    return {times_power_of_two(x.low, biased.low), times_power_of_two(x.high, biased.high)};
  }
  static __m256 round_to_bf16(__m256 x) {
    const __m256i bits = _mm256_castps_si256(x);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    const __m256i rounded = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7FFF)), odd);
    const __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
    const __m256 is_nan = _mm256_cmp_ps(x, x, _CMP_UNORD_Q);
    const __m256 result = _mm256_blendv_ps(_mm256_castsi256_ps(rounded), _mm256_castsi256_ps(quiet), is_nan);
    return _mm256_and_ps(result, _mm256_castsi256_ps(_mm256_set1_epi32(-0x10000)));
  }
  static Lanes round_to_bf16(Lanes x) { return {round_to_bf16(x.low), round_to_bf16(x.high)}; }
  [[nodiscard]] float largest() const {
    const __m256 eight = _mm256_max_ps(low, high);
    const __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
  }
  /// Eight rows of eight, in place.
  static void transpose_8(__m256 (&rows)[8]) {
    __m256 fours[8];  // fours[4 g + j]: column j of both blocks of four, rows 4 g .. 4 g + 3
    for (int g = 0; g < 8; g += 4) {
      const __m256 low_01 = _mm256_unpacklo_ps(rows[g], rows[g + 1]);
      const __m256 high_01 = _mm256_unpackhi_ps(rows[g], rows[g + 1]);
      const __m256 low_23 = _mm256_unpacklo_ps(rows[g + 2], rows[g + 3]);
      const __m256 high_23 = _mm256_unpackhi_ps(rows[g + 2], rows[g + 3]);
      fours[g] = _mm256_shuffle_ps(low_01, low_23, 0x44);
      fours[g + 1] = _mm256_shuffle_ps(low_01, low_23, 0xEE);
      fours[g + 2] = _mm256_shuffle_ps(high_01, high_23, 0x44);
      fours[g + 3] = _mm256_shuffle_ps(high_01, high_23, 0xEE);
    }
    for (int j = 0; j < 4; ++j) {
      rows[j] = _mm256_permute2f128_ps(fours[j], fours[4 + j], 0x20);
      rows[4 + j] = _mm256_permute2f128_ps(fours[j], fours[4 + j], 0x31);
    }
  }
  static void transpose(Lanes (&rows)[16]) {
    __m256 blocks[4][8];  // low rows: left and right half; high rows: left and right half
    for (int i = 0; i < 8; ++i) {
      blocks[0][i] = rows[i].low;
      blocks[1][i] = rows[i].high;
      blocks[2][i] = rows[8 + i].low;
      blocks[3][i] = rows[8 + i].high;
    }
    for (auto& block : blocks) transpose_8(block);
    for (int i = 0; i < 8; ++i) {
      rows[i] = {blocks[0][i], blocks[2][i]};
      rows[8 + i] = {blocks[1][i], blocks[3][i]};
    }
  }
  [[nodiscard]] float sum() const {
    const __m256 eight = _mm256_add_ps(low, high);
    const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
  }
};

}  // namespace
