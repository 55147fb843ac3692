// 16 floats in one 512-bit register. The contract is that of lanes_portable.h. Needs AVX-512 F, BW, VL and DQ.
#pragma once

#include "backend/cpu/isa/codes_sse.h"
#include "format/scalar_codecs.h"

namespace {

struct Lanes {
  static constexpr int kTileRows = 6;
  static constexpr int kTileTokens = 4;
  static constexpr int kChains = 12;        ///< independent sums that hide the latency of fma()
  static constexpr int kAttentionRows = 6;  // with so many vectors of columns, sums fill the registers
  static constexpr int kAttentionVectors = 4;
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
  static Lanes load_e4m3(const std::byte* from) {
    const __m256i codes = _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
    return {_mm512_mul_ps(_mm512_cvtph_ps(e4m3_to_f16(codes)), _mm512_set1_ps(256.0F))};
  }
  /// 64 bytes as they are.
  static Lanes load_words(const std::byte* from) { return {_mm512_loadu_ps(from)}; }
  static Lanes low_bf16(Lanes words) { return {_mm512_castsi512_ps(_mm512_slli_epi32(words.bits(), 16))}; }
  static Lanes high_bf16(Lanes words) {
    return {_mm512_castsi512_ps(_mm512_and_si512(words.bits(), _mm512_set1_epi32(-0x10000)))};
  }
  static Lanes pair_bf16(Lanes low, Lanes high) {
    return {_mm512_castsi512_ps(_mm512_mask_blend_epi16(0xAAAAAAAA, _mm512_srli_epi32(low.bits(), 16), high.bits()))};
  }
  static float half_to_float(std::uint16_t code) { return _cvtsh_ss(code); }
  static Lanes from_int8(Codes codes) { return {_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(codes.bytes))}; }
  static Lanes lookup16(const float* table, Codes codes) {
    return {_mm512_permutexvar_ps(_mm512_cvtepu8_epi32(codes.bytes), _mm512_loadu_ps(table))};
  }
  static Lanes lookup256(const float* table, Codes codes) {
    return {_mm512_i32gather_ps(_mm512_cvtepu8_epi32(codes.bytes), table, 4)};
  }

  static Lanes load_int8(const std::byte* from) {
    return {_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from))))};
  }
  /// The bytes of 16 codes of a block scale.
  template <class Codec>
  static auto load_scales(const std::byte* from) {
    if constexpr (sizeof(typename Codec::Code) == 2)
      return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
    else
      return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
  }
  /// Those of the first `count` codes, and zeros. Lanes without such loads do without (sources_impl.h).
  template <class Codec>
  static auto load_first_scales(const std::byte* from, std::int64_t count) {
    if constexpr (sizeof(typename Codec::Code) == 2)
      return _mm256_maskz_loadu_epi16(first_mask(count), from);
    else
      return _mm_maskz_loadu_epi8(first_mask(count), from);
  }
  /// `count` bytes, at most 32, and zeros behind them.
  static __m256i load_first_bytes(const std::byte* from, std::int64_t count) {
    return _mm256_maskz_loadu_epi8(count < 32 ? (1U << static_cast<unsigned>(count)) - 1U : ~0U, from);
  }
  static __m128i join_words(const std::uint64_t (&words)[2]) {
    return _mm_set_epi64x(static_cast<long long>(words[1]), static_cast<long long>(words[0]));
  }
  static __m256i join_words(const std::uint64_t (&words)[4]) {
    return _mm256_set_epi64x(static_cast<long long>(words[3]), static_cast<long long>(words[2]),
                             static_cast<long long>(words[1]), static_cast<long long>(words[0]));
  }
  template <class Codec, class Bytes>
  static Lanes decode_scales(Bytes bytes) {
    if constexpr (std::is_same_v<Codec, vernier::F16Codec>) {
      return {_mm512_cvtph_ps(bytes)};
    } else if constexpr (std::is_same_v<Codec, vernier::E8M0Codec>) {
      const __m512i wide = _mm512_cvtepu8_epi32(bytes);
      const __mmask16 is_nan = _mm512_cmpeq_epi32_mask(wide, _mm512_set1_epi32(0xFF));
      const __m512i bits = _mm512_max_epu32(_mm512_slli_epi32(wide, 23), _mm512_set1_epi32(0x00400000));
      return {_mm512_castsi512_ps(_mm512_mask_mov_epi32(bits, is_nan, _mm512_set1_epi32(0x7FC00000)))};
    } else {
      static_assert(std::is_same_v<Codec, vernier::UE4M3Codec>);
      const __mmask16 is_nan =
          _mm_cmpeq_epi8_mask(_mm_or_si128(bytes, _mm_set1_epi8(static_cast<char>(0x80))), _mm_set1_epi8(-1));
      const __m256i halves = _mm256_and_si256(_mm256_slli_epi16(_mm256_cvtepi8_epi16(bytes), 7),
                                              _mm256_set1_epi16(static_cast<short>(0xBF80)));
      const __m512 values = _mm512_mul_ps(_mm512_cvtph_ps(halves), _mm512_set1_ps(0x1p8F));
      return {_mm512_mask_mov_ps(values, is_nan, _mm512_castsi512_ps(_mm512_set1_epi32(0x7FC00000)))};
    }
  }
  static Lanes gather(const float* base, const std::int32_t* index) {
    return {_mm512_i32gather_ps(_mm512_loadu_si512(index), base, 4)};
  }
  /// No more is loaded than was stored together.
  template <int kCount>
  static Lanes spread(const float* from, const std::int32_t* index) {
    static_assert(kCount == 4 || kCount == 8);
    const __m512i lanes = _mm512_loadu_si512(index);
    if constexpr (kCount == 4) return {_mm512_permutexvar_ps(lanes, _mm512_broadcast_f32x4(_mm_loadu_ps(from)))};
    return {_mm512_permutexvar_ps(lanes, _mm512_broadcast_f32x8(_mm256_loadu_ps(from)))};
  }
  static Lanes join(const float* low, const float* high) {
    return {_mm512_insertf32x8(_mm512_castps256_ps512(_mm256_loadu_ps(low)), _mm256_loadu_ps(high), 1)};
  }
  static Lanes halves(float low, float high) {
    return {_mm512_mask_blend_ps(0xFF00, _mm512_set1_ps(low), _mm512_set1_ps(high))};
  }
  static void prefetch(const std::byte* from) { _mm_prefetch(reinterpret_cast<const char*>(from), _MM_HINT_T0); }

  friend Lanes operator+(Lanes a, Lanes b) { return {_mm512_add_ps(a.v, b.v)}; }
  friend Lanes operator-(Lanes a, Lanes b) { return {_mm512_sub_ps(a.v, b.v)}; }
  friend Lanes operator*(Lanes a, Lanes b) { return {_mm512_mul_ps(a.v, b.v)}; }
  friend Lanes operator/(Lanes a, Lanes b) { return {_mm512_div_ps(a.v, b.v)}; }
  static Lanes fma(Lanes a, Lanes b, Lanes c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
  // min and max return their second operand when either is NaN.
  static Lanes at_most(Lanes x, float bound) { return {_mm512_min_ps(_mm512_set1_ps(bound), x.v)}; }
  static Lanes at_least(Lanes x, float bound) { return {_mm512_max_ps(_mm512_set1_ps(bound), x.v)}; }
  static Lanes largest(Lanes a, Lanes b) { return {_mm512_max_ps(a.v, b.v)}; }
  static Lanes magnitude(Lanes x) { return {_mm512_abs_ps(x.v)}; }
  static Lanes select_less(Lanes x, float bound, Lanes yes, Lanes no) {
    return {_mm512_mask_blend_ps(_mm512_cmp_ps_mask(x.v, _mm512_set1_ps(bound), _CMP_LT_OQ), no.v, yes.v)};
  }
  static Lanes keep_first(Lanes x, std::int64_t count, float fill) {
    return {_mm512_mask_blend_ps(first_mask(count), _mm512_set1_ps(fill), x.v)};
  }
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
  [[nodiscard]] __m512i bits() const { return _mm512_castps_si512(v); }
  [[nodiscard]] float largest() const { return _mm512_reduce_max_ps(v); }
  static void transpose(Lanes (&rows)[16]) {
    __m512 pairs[16];
    for (int i = 0; i < 16; i += 2) {
      pairs[i] = _mm512_unpacklo_ps(rows[i].v, rows[i + 1].v);
      pairs[i + 1] = _mm512_unpackhi_ps(rows[i].v, rows[i + 1].v);
    }
    __m512 fours[16];  // fours[4 g + j]: column j of each block of four, rows 4 g .. 4 g + 3
    for (int g = 0; g < 16; g += 4) {
      fours[g] = _mm512_shuffle_ps(pairs[g], pairs[g + 2], 0x44);
      fours[g + 1] = _mm512_shuffle_ps(pairs[g], pairs[g + 2], 0xEE);
      fours[g + 2] = _mm512_shuffle_ps(pairs[g + 1], pairs[g + 3], 0x44);
      fours[g + 3] = _mm512_shuffle_ps(pairs[g + 1], pairs[g + 3], 0xEE);
    }
    for (int j = 0; j < 4; ++j) {
      const __m512 even_top = _mm512_shuffle_f32x4(fours[j], fours[4 + j], 0x88);
      const __m512 even_bottom = _mm512_shuffle_f32x4(fours[8 + j], fours[12 + j], 0x88);
      const __m512 odd_top = _mm512_shuffle_f32x4(fours[j], fours[4 + j], 0xDD);
      const __m512 odd_bottom = _mm512_shuffle_f32x4(fours[8 + j], fours[12 + j], 0xDD);
      rows[j].v = _mm512_shuffle_f32x4(even_top, even_bottom, 0x88);
      rows[4 + j].v = _mm512_shuffle_f32x4(odd_top, odd_bottom, 0x88);
      rows[8 + j].v = _mm512_shuffle_f32x4(even_top, even_bottom, 0xDD);
      rows[12 + j].v = _mm512_shuffle_f32x4(odd_top, odd_bottom, 0xDD);
    }
  }
  [[nodiscard]] float sum() const {
    const __m256 eight = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
    const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
  }
};

/// 16 dwords of 8 nibbles each.
struct NibbleChunk {
  static constexpr int kBytes = 64;
  static constexpr int kSteps = 8;
  /// Which nibble of the chunk step `step` finds for a lane (2 * byte, + 1 for the high one).
  static constexpr int nibble_at(int step, int lane) { return lane * 8 + step; }
  /// Step i of those that find low (0) or high (1) nibbles.
  static constexpr int step_of(int half, int i) { return 2 * i + half; }
  struct Table {
    __m512 values;
    explicit Table(const float* sixteen) : values(_mm512_loadu_ps(sixteen)) {}
  };
};

/// A chunk whose bytes lie together. Loads at odd addresses save shifts, which share a port with multiplications; they
/// read up to kOverread bytes beyond.
struct NibbleRun : NibbleChunk {
  static constexpr int kOverread = 3;
  const std::byte* from;

  explicit NibbleRun(const std::byte* bytes) : from(bytes) {}
  [[nodiscard]] __m512i all() const { return _mm512_loadu_si512(from); }
  template <int kStep>
  [[nodiscard]] Lanes step(const Table& table) const {
    // The lookup ignores all but the low four bits of an index.
    __m512i index = _mm512_loadu_si512(from + kStep / 2);
    if constexpr (kStep % 2 != 0) index = _mm512_srli_epi32(index, 4);
    return {_mm512_permutexvar_ps(index, table.values)};
  }
};

/// A chunk in pieces of kPiece bytes at distances of kStride.
template <int kPiece, int kStride>
struct NibblePieces : NibbleChunk {
  static constexpr int kOverread = 0;
  __m512i words;

  explicit NibblePieces(const std::byte* bytes) {
    if constexpr (kPiece == 32) {
      words = _mm512_inserti64x4(_mm512_castsi256_si512(load_256(bytes)), load_256(bytes + kStride), 1);
    } else {
      static_assert(kPiece == 16);
      words = _mm512_castsi128_si512(Codes::load_bytes(bytes).bytes);
      words = _mm512_inserti32x4(words, Codes::load_bytes(bytes + kStride).bytes, 1);
      words = _mm512_inserti32x4(words, Codes::load_bytes(bytes + 2 * kStride).bytes, 2);
      words = _mm512_inserti32x4(words, Codes::load_bytes(bytes + 3 * kStride).bytes, 3);
    }
  }
  [[nodiscard]] __m512i all() const { return words; }
  template <int kStep>
  [[nodiscard]] Lanes step(const Table& table) const {
    return {_mm512_permutexvar_ps(_mm512_srli_epi32(words, kStep * 4), table.values)};
  }

 private:
  static __m256i load_256(const std::byte* from) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)); }
};

/// 64 E4M3 codes. A code moved to the top of a half-precision number, exponent and all, is its value times 2^-8.
struct E4M3Chunk {
  static constexpr int kSteps = 4;
  static constexpr float kFactor = 0x1p8F;  ///< what values lack
  static constexpr int value_at(int step, int lane) { return (step % 2 * 16 + lane) * 2 + step / 2; }
  __m512i even;
  __m512i odd;

  explicit E4M3Chunk(const std::byte* bytes) {
    const __m512i codes = _mm512_loadu_si512(bytes);
    const __m512i keep = _mm512_set1_epi16(static_cast<short>(0xBF80));
    even = _mm512_and_si512(_mm512_srai_epi16(_mm512_slli_epi16(codes, 8), 1), keep);
    odd = _mm512_and_si512(_mm512_srai_epi16(codes, 1), keep);
  }
  template <int kStep>
  [[nodiscard]] Lanes step() const {
    const __m512i halves = kStep / 2 == 0 ? even : odd;
    if constexpr (kStep % 2 == 0) return {_mm512_cvtph_ps(_mm512_castsi512_si256(halves))};
    return {_mm512_cvtph_ps(_mm512_extracti64x4_epi64(halves, 1))};
  }
  /// Notices codes that mean NaN, which the conversion takes for numbers.
  struct NanWatch {
    __m512i largest = _mm512_setzero_si512();  ///< of twice a code: 254 is NaN
    void see(const std::byte* bytes) {
      const __m512i codes = _mm512_loadu_si512(bytes);
      largest = _mm512_max_epu8(largest, _mm512_add_epi8(codes, codes));
    }
    [[nodiscard]] bool seen() const {
      return _mm512_cmpeq_epi8_mask(largest, _mm512_set1_epi8(static_cast<char>(0xFE))) != 0;
    }
  };
};

/// 32 bf16 values in 16 dwords: the even ones are the low halves.
struct Bf16Pairs {
  __m512i words;
  explicit Bf16Pairs(const std::byte* bytes) : words(_mm512_loadu_si512(bytes)) {}
  template <int kStep>
  [[nodiscard]] Lanes step() const {
    if constexpr (kStep == 0) return {_mm512_castsi512_ps(_mm512_slli_epi32(words, 16))};
    return {_mm512_castsi512_ps(_mm512_and_si512(words, _mm512_set1_epi32(-0x10000)))};
  }
};

}  // namespace
