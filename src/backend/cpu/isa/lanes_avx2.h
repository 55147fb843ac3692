// 16 floats in two 256-bit registers. The contract is that of lanes_portable.h.
#pragma once

#include "backend/cpu/isa/codes_sse.h"
#include "format/scalar_codecs.h"

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

  static __m256 widen_int8(__m128i codes) { return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(codes)); }
  static Lanes load_int8(const std::byte* from) {
    return {widen_int8(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from))),
            widen_int8(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from + 8)))};
  }
  static __m256 nan_where(__m256 values, __m256i is_nan) {
    return _mm256_blendv_ps(values, _mm256_castsi256_ps(_mm256_set1_epi32(0x7FC00000)), _mm256_castsi256_ps(is_nan));
  }
  static __m256 widen_e8m0(__m128i codes) {
    const __m256i wide = _mm256_cvtepu8_epi32(codes);
    const __m256i bits = _mm256_max_epu32(_mm256_slli_epi32(wide, 23), _mm256_set1_epi32(0x00400000));
    return nan_where(_mm256_castsi256_ps(bits), _mm256_cmpeq_epi32(wide, _mm256_set1_epi32(0xFF)));
  }
  static __m256 widen_e4m3(__m128i codes) {
    const __m128i halves =
        _mm_and_si128(_mm_slli_epi16(_mm_cvtepi8_epi16(codes), 7), _mm_set1_epi16(static_cast<short>(0xBF80)));
    const __m256i wide = _mm256_cvtepu8_epi32(_mm_or_si128(codes, _mm_set1_epi8(static_cast<char>(0x80))));
    return nan_where(_mm256_mul_ps(_mm256_cvtph_ps(halves), _mm256_set1_ps(0x1p8F)),
                     _mm256_cmpeq_epi32(wide, _mm256_set1_epi32(0xFF)));
  }
  /// The bytes of 16 codes of a block scale.
  template <class Codec>
  static auto load_scales(const std::byte* from) {
    if constexpr (sizeof(typename Codec::Code) == 2)
      return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
    else
      return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
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
      return {_mm256_cvtph_ps(_mm256_castsi256_si128(bytes)), _mm256_cvtph_ps(_mm256_extracti128_si256(bytes, 1))};
    } else if constexpr (std::is_same_v<Codec, vernier::E8M0Codec>) {
      return {widen_e8m0(bytes), widen_e8m0(_mm_srli_si128(bytes, 8))};
    } else {
      static_assert(std::is_same_v<Codec, vernier::UE4M3Codec>);
      return {widen_e4m3(bytes), widen_e4m3(_mm_srli_si128(bytes, 8))};
    }
  }
  static __m256i load_index(const std::int32_t* index) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(index));
  }
  static Lanes gather(const float* base, const std::int32_t* index) {
    return {_mm256_i32gather_ps(base, load_index(index), 4), _mm256_i32gather_ps(base, load_index(index + 8), 4)};
  }
  template <int kCount>
  static Lanes spread(const float* from, const std::int32_t* index) {
    const __m256 values = _mm256_loadu_ps(from);
    return {_mm256_permutevar8x32_ps(values, load_index(index)),
            _mm256_permutevar8x32_ps(values, load_index(index + 8))};
  }
  static Lanes join(const float* low, const float* high) { return {_mm256_loadu_ps(low), _mm256_loadu_ps(high)}; }
  static Lanes halves(float low, float high) { return {_mm256_set1_ps(low), _mm256_set1_ps(high)}; }
  static void prefetch(const std::byte* from) { _mm_prefetch(reinterpret_cast<const char*>(from), _MM_HINT_T0); }

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

/// 32 bytes of nibbles, looked up as bf16: their bytes in two lookups, woven together to words.
struct NibbleChunk {
  static constexpr int kBytes = 32;
  static constexpr int kSteps = 4;
  /// Which nibble of the chunk step `step` finds for a lane (2 * byte, + 1 for the high one).
  static constexpr int nibble_at(int step, int lane) {
    const int pair = lane / 4 % 2 * 8 + lane / 8 * 4 + lane % 4;  // of bytes
    return (2 * pair + step % 2) * 2 + step / 2;
  }
  /// Step i of those that find low (0) or high (1) nibbles.
  static constexpr int step_of(int half, int i) { return 2 * half + i; }
  struct Table {
    __m256i low;
    __m256i high;
    /// Numbers that bf16 holds.
    explicit Table(const float* sixteen) {
      alignas(16) std::uint8_t bytes[2][16];
      for (int i = 0; i < 16; ++i) {
        const std::uint32_t bits = __builtin_bit_cast(std::uint32_t, sixteen[i]);
        bytes[0][i] = static_cast<std::uint8_t>(bits >> 16);
        bytes[1][i] = static_cast<std::uint8_t>(bits >> 24);
      }
      low = _mm256_broadcastsi128_si256(_mm_load_si128(reinterpret_cast<const __m128i*>(bytes[0])));
      high = _mm256_broadcastsi128_si256(_mm_load_si128(reinterpret_cast<const __m128i*>(bytes[1])));
    }
  };
  __m256i nibbles[2];  ///< low, high

  void set(__m256i bytes) {
    const __m256i mask = _mm256_set1_epi8(15);
    nibbles[0] = _mm256_and_si256(bytes, mask);
    nibbles[1] = _mm256_and_si256(_mm256_srli_epi16(bytes, 4), mask);
  }
  template <int kStep>
  [[nodiscard]] Lanes step(const Table& table) const {
    const __m256i low = _mm256_shuffle_epi8(table.low, nibbles[kStep / 2]);
    const __m256i high = _mm256_shuffle_epi8(table.high, nibbles[kStep / 2]);
    return {widen<kStep % 2>(_mm256_unpacklo_epi8(low, high)), widen<kStep % 2>(_mm256_unpackhi_epi8(low, high))};
  }

 private:
  template <int kOdd>
  static __m256 widen(__m256i words) {
    if constexpr (kOdd == 0) return _mm256_castsi256_ps(_mm256_slli_epi32(words, 16));
    return _mm256_castsi256_ps(_mm256_and_si256(words, _mm256_set1_epi32(-0x10000)));
  }
};

/// A chunk whose bytes lie together.
struct NibbleRun : NibbleChunk {
  static constexpr int kOverread = 0;
  explicit NibbleRun(const std::byte* bytes) { set(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(bytes))); }
};

/// A chunk in pieces of kPiece bytes at distances of kStride.
template <int kPiece, int kStride>
struct NibblePieces : NibbleChunk {
  static constexpr int kOverread = 0;
  explicit NibblePieces(const std::byte* bytes) {
    if constexpr (kPiece == 32) {
      set(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(bytes)));
    } else {
      static_assert(kPiece == 16);
      set(_mm256_inserti128_si256(_mm256_castsi128_si256(Lanes::load_128(bytes)), Lanes::load_128(bytes + kStride), 1));
    }
  }
};

/// 64 E4M3 codes. A code moved to the top of a half-precision number, exponent and all, is its value times 2^-8.
struct E4M3Chunk {
  static constexpr int kSteps = 4;
  static constexpr float kFactor = 0x1p8F;  ///< what values lack
  static constexpr int value_at(int step, int lane) { return step / 2 * 32 + lane * 2 + step % 2; }
  __m256i halves[4];  ///< even and odd ones of the first 32, of the others

  explicit E4M3Chunk(const std::byte* bytes) {
    const __m256i keep = _mm256_set1_epi16(static_cast<short>(0xBF80));
    for (int i = 0; i < 2; ++i) {
      const __m256i codes = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(bytes + i * 32));
      halves[2 * i] = _mm256_and_si256(_mm256_srai_epi16(_mm256_slli_epi16(codes, 8), 1), keep);
      halves[2 * i + 1] = _mm256_and_si256(_mm256_srai_epi16(codes, 1), keep);
    }
  }
  template <int kStep>
  [[nodiscard]] Lanes step() const {
    return {_mm256_cvtph_ps(_mm256_castsi256_si128(halves[kStep])),
            _mm256_cvtph_ps(_mm256_extracti128_si256(halves[kStep], 1))};
  }
  /// Notices codes that mean NaN, which the conversion takes for numbers.
  struct NanWatch {
    __m256i largest = _mm256_setzero_si256();  ///< of twice a code: 254 is NaN
    void see(const std::byte* bytes) {
      for (int i = 0; i < 2; ++i) {
        const __m256i codes = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(bytes + i * 32));
        largest = _mm256_max_epu8(largest, _mm256_add_epi8(codes, codes));
      }
    }
    [[nodiscard]] bool seen() const {
      return _mm256_movemask_epi8(_mm256_cmpeq_epi8(largest, _mm256_set1_epi8(static_cast<char>(0xFE)))) != 0;
    }
  };
};

/// 32 bf16 values in 16 dwords: the even ones are the low halves.
struct Bf16Pairs {
  __m256i low;
  __m256i high;
  explicit Bf16Pairs(const std::byte* bytes)
      : low(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(bytes))),
        high(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(bytes + 32))) {}
  template <int kStep>
  [[nodiscard]] Lanes step() const {
    if constexpr (kStep == 0) {
      return {_mm256_castsi256_ps(_mm256_slli_epi32(low, 16)), _mm256_castsi256_ps(_mm256_slli_epi32(high, 16))};
    }
    const __m256i mask = _mm256_set1_epi32(-0x10000);
    return {_mm256_castsi256_ps(_mm256_and_si256(low, mask)), _mm256_castsi256_ps(_mm256_and_si256(high, mask))};
  }
};

}  // namespace
