// How values of weight rows become tiles of bf16 numbers, over the sources of sources_impl.h: no format is named here.
//
// A chunk of 128 values is 4 rows of tiles of 32 numbers. A decoder states
//   value_at(tile, i)   which value of the chunk that is
//   kFillsScales        whether it wants the source's fill_scales()
//   kScaled             sums of a chunk are multiplied with a scale of the row, chunk_scale(); else scales are in the
//                       numbers
//   chunk(cursor, to)   writes them, tiles being kTileNumbers apart
//   flags()             what has been met so far
#pragma once

#include "backend/cpu/isa/inlining.h"
#include "backend/cpu/isa/rows_impl.h"

namespace {

constexpr int kChunkValues = 128;
constexpr int kChunkTiles = 4;
constexpr int kTileNumbers = 16 * 32;

/// What makes a row other than the tiles' product: it has to be multiplied in fp32, or it is NaN.
enum RowFlags : unsigned { kFits = 0, kNeedsFloats = 1, kIsNan = 2 };

/// Sources whose steps give numbers that bf16 holds: two of them side by side are a row of a tile.
template <class Source>
struct PairDecoder {
  static_assert(Source::kValues == kChunkValues);
  static constexpr bool kScaled = Source::kScales != 0;
  static constexpr int value_at(int tile, int i) { return Source::value_at(2 * tile + i % 2, i / 2); }

  static constexpr bool kFillsScales = kScaled;
  struct Constants {};
  PairDecoder(const Constants&, const WeightRows&, std::int64_t, std::int64_t, std::int64_t) {}
  void chunk(const Cursor<Source>& cursor, std::uint16_t* to) {
    const typename Source::Chunk chunk(cursor.at);
    const auto table = Source::table();
    unroll<0, kChunkTiles>([&](auto tile) VN_INLINED {
      constexpr int kTile = decltype(tile)::kValue;
      const Lanes low = chunk.template step<2 * kTile>(table);
      const Lanes high = chunk.template step<2 * kTile + 1>(table);
      Lanes::pair_bf16(low, high).store(reinterpret_cast<float*>(to + kTile * kTileNumbers));
    });
  }
  static float chunk_scale(const Cursor<Source>& cursor) { return kScaled ? cursor.scales[0] : 1.0F; }
  [[nodiscard]] static unsigned flags(const Cursor<Source>& cursor) { return cursor.watch.seen() ? kIsNan : kFits; }
};

/// Numbers that are bf16 already. Tiles take subnormals for zero.
template <class Source>
struct CopyDecoder {
  static_assert(Source::kValues == kChunkValues);
  static constexpr bool kScaled = false;
  static constexpr int value_at(int tile, int i) { return kTileColumnsOf * tile + i; }
  static constexpr int kTileColumnsOf = static_cast<int>(vernier_isa::kTileValues);
  __m512i least = _mm512_set1_epi16(-1);  ///< of twice a number's magnitude less one

  static constexpr bool kFillsScales = false;
  struct Constants {};
  CopyDecoder(const Constants&, const WeightRows&, std::int64_t, std::int64_t, std::int64_t) {}
  void chunk(const Cursor<Source>& cursor, std::uint16_t* to) {
    for (int tile = 0; tile < kChunkTiles; ++tile) {
      const __m512i numbers = _mm512_loadu_si512(cursor.at + tile * 64);
      const __m512i doubled = _mm512_add_epi16(numbers, numbers);
      least = _mm512_min_epu16(least, _mm512_add_epi16(doubled, _mm512_set1_epi16(-1)));
      _mm512_store_si512(to + tile * kTileNumbers, numbers);
    }
  }
  static float chunk_scale(const Cursor<Source>&) { return 1.0F; }
  [[nodiscard]] unsigned flags(const Cursor<Source>&) const {
    return _mm512_cmplt_epu16_mask(least, _mm512_set1_epi16(0xFF)) != 0 ? kNeedsFloats : kFits;
  }
};

constexpr int kTopExponent = 250;  ///< of 1, in numbers that scales are subtracted from

/// What 32 scales change in the numbers that codes stand for, in 16 bits each.
struct FoldedWords {
  __m512i distance;  ///< what is subtracted: zero scales make zeros
  __m512i fraction;  ///< what 1.5 adds to the bits of a scale, below ones
  __mmask32 unfit;   ///< scales that tiles would not do justice to
};

template <class Codec>
struct FoldedScales;

template <>
struct FoldedScales<vn::E8M0Codec> {
  static constexpr bool kPowers = true;
  using Words = FoldedWords;
  [[nodiscard]] static Words of(__m512i codes, __mmask32 real) {
    // From 2^-64 to 2^64: neither products nor sums of them get near the ends of the range.
    const __m512i above = _mm512_sub_epi16(codes, _mm512_set1_epi16(127 - 64));
    return {_mm512_slli_epi16(_mm512_sub_epi16(_mm512_set1_epi16(kTopExponent), codes), 7), __m512i{},
            _mm512_mask_cmpgt_epu16_mask(real, above, _mm512_set1_epi16(128))};
  }
};

/// For lookups by the low 5 bits of a word.
struct WordTable {
  std::uint16_t of[32];
};

/// The upper half of what a scale code means, times a factor.
constexpr std::uint32_t scale_bits(unsigned code, float factor) {
  return __builtin_bit_cast(std::uint32_t, vn::kDecodeTable<vn::UE4M3Codec>[code] * factor) >> 16U;
}
/// By the fraction of a code, whose other bits are `exponent`: what 1.5 adds to its bits.
constexpr WordTable fraction_table(unsigned exponent) {
  WordTable table{};
  for (unsigned i = 0; i < 32; ++i) {
    const unsigned code = exponent + i % 8;
    table.of[i] = static_cast<std::uint16_t>(0xFF80U | (scale_bits(code, 1.5F) - scale_bits(code, 1.0F)));
  }
  return table;
}
constexpr WordTable kFractions = fraction_table(64);
constexpr WordTable kSmallFractions = fraction_table(0);
constexpr WordTable kSmallDistances = [] {
  WordTable table{};
  for (unsigned i = 0; i < 32; ++i) {
    const std::uint32_t distance = (static_cast<std::uint32_t>(kTopExponent) << 7U) - scale_bits(i % 8, 1.0F);
    table.of[i] = static_cast<std::uint16_t>(i % 8 == 0 ? 0xFFFFU : distance);
  }
  return table;
}();

/// All of its scales fit but NaN, and those with a sign.
template <>
struct FoldedScales<vn::UE4M3Codec> {
  static constexpr bool kPowers = false;
  using Words = FoldedWords;
  __m512i fractions = _mm512_loadu_si512(kFractions.of);
  __m512i small_fractions = _mm512_loadu_si512(kSmallFractions.of);
  __m512i small_distances = _mm512_loadu_si512(kSmallDistances.of);

  [[nodiscard]] Words of(__m512i codes, __mmask32 real) const {
    const __mmask32 small = _mm512_cmplt_epu16_mask(codes, _mm512_set1_epi16(8));
    // Moved to the place of a bf16 number's exponent and fraction, a code lacks 120 in the exponent.
    const __m512i top = _mm512_set1_epi16((kTopExponent - 120) << 7);
    const __m512i distance = _mm512_sub_epi16(top, _mm512_slli_epi16(codes, 4));
    const __m512i fraction = _mm512_permutexvar_epi16(codes, fractions);
    return {_mm512_mask_permutexvar_epi16(distance, small, codes, small_distances),
            _mm512_mask_permutexvar_epi16(fraction, small, codes, small_fractions),
            _mm512_mask_cmpge_epu16_mask(real, codes, _mm512_set1_epi16(0x7F))};
  }
};

/// The codes of `count` scales of 8 bits, at most 32, from value `begin` of a row on; zeros behind them.
template <class Source>
VN_INLINED inline __m256i scale_codes(const WeightRows& rows, std::int64_t row, std::int64_t begin,
                                      std::int64_t count) {
  using F = typename Source::Format;
  if constexpr (!Source::kIsInterleaved) {
    const std::byte* at = row_scales(rows, row) + begin / F::kScaleValues;
    _mm_prefetch(reinterpret_cast<const char*>(at + 16 * rows.scale_stride), _MM_HINT_T1);
    return Lanes::load_first_bytes(at, count);
  } else {
    constexpr int kTogether = F::kBlockValues / F::kScaleValues;
    const std::byte* at = rows.codes + row * rows.row_stride + begin / F::kBlockValues * F::kBlockBytes;
    std::uint64_t words[4] = {};
    for (std::int64_t i = 0; i < count; i += kTogether, at += F::kBlockBytes) {
      std::uint64_t piece = 0;
      __builtin_memcpy(&piece, at + Source::kScalesAt, kTogether);
      words[i / 8] |= piece << (i % 8 * 8);
    }
    return Lanes::join_words(words);
  }
}

/// 4-bit codes that mean zero or +-{1, 1.5} times a power of two, under scales that bf16 holds, as it does their
/// products with 1.5. A product's bits are those of the scale plus an exponent, and for 1.5 something more that depends
/// on the scale. They are found by subtraction with saturation, in which zero stays zero, from numbers higher than any
/// scale.
template <class Source>
struct FoldingDecoder {
  static_assert(Source::kValues == kChunkValues && Source::kSegments == 1);
  static constexpr bool kScaled = false;
  static constexpr bool kFillsScales = false;

  /// Step `tile` finds nibble `tile` of each 16-bit word.
  static constexpr int value_at(int tile, int i) { return Source::value_of_nibble(4 * i + tile); }

  /// Of each code sign, exponent, and the fraction all ones if it's a half. Twice the 16 codes: lookups need no mask.
  static constexpr std::uint32_t bits_of(int code) {
    return __builtin_bit_cast(std::uint32_t, vn::kDecodeTable<typename Source::Codec>[static_cast<unsigned>(code)]);
  }
  static constexpr WordTable kHighest = [] {
    WordTable numbers{};
    for (int i = 0; i < 32; ++i) {
      const std::uint32_t bits = bits_of(i % 16);
      if (bits << 1U == 0) continue;
      const std::uint32_t power = (bits & 0xFF800000U) + (static_cast<std::uint32_t>(kTopExponent - 127) << 23U);
      numbers.of[i] = static_cast<std::uint16_t>((power >> 16U) | ((bits & 0x400000U) != 0 ? 0x7FU : 0U));
    }
    return numbers;
  }();
  static_assert([] {
    for (int i = 0; i < 16; ++i) {
      if ((bits_of(i) & 0x3FFFFFU) != 0) return false;
    }
    return true;
  }());
  using Scales = FoldedScales<typename Source::ScaleCodec>;
  struct ByteMap {
    std::int8_t index[64];
  };
  /// Which bytes of a chunk's scales, in 16 bits each, a word of codes has.
  static constexpr ByteMap kScaleOfWord = [] {
    ByteMap map{};
    for (int i = 0; i < 64; ++i) map.index[i] = static_cast<std::int8_t>(i / (64 / Source::kScales) * 2 + i % 2);
    return map;
  }();

  /// What stays in registers from row to row.
  struct Constants {
    __m512i highest = _mm512_loadu_si512(kHighest.of);
    __m512i scale_of_word = _mm512_loadu_si512(kScaleOfWord.index);
    Scales scales = {};
  };

  const Constants& constants;
  alignas(64) std::uint16_t distances[32 + 8];
  alignas(64) std::uint16_t fractions[32 + 8];
  std::int64_t scale = 0;
  bool unfit = false;

  FoldingDecoder(const Constants& all, const WeightRows& rows, std::int64_t row, std::int64_t begin, std::int64_t count)
      : constants(all) {
    const std::int64_t num_scales = (count * Source::kScales + kChunkValues - 1) / kChunkValues;
    const __m256i codes = scale_codes<Source>(rows, row, begin, num_scales);
    const __mmask32 real = num_scales < 32 ? (1U << num_scales) - 1U : ~0U;
    const typename Scales::Words words = constants.scales.of(_mm512_cvtepu8_epi16(codes), real);
    unfit = words.unfit != 0;
    _mm512_store_si512(distances, words.distance);
    if constexpr (!Scales::kPowers) _mm512_store_si512(fractions, words.fraction);
  }
  [[nodiscard]] __m512i spread(const std::uint16_t* from) const {
    __m512i words;
    if constexpr (Source::kScales == 8) {
      words = _mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
    } else {
      static_assert(Source::kScales == 4);
      words = _mm512_broadcastq_epi64(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from)));
    }
    return _mm512_shuffle_epi8(words, constants.scale_of_word);
  }
  void chunk(const Cursor<Source>& cursor, std::uint16_t* to) {
    const __m512i words = typename Source::Chunk(cursor.at).codes.all();
    const __m512i distance = spread(distances + scale);
    const __m512i fraction = Scales::kPowers ? _mm512_set1_epi16(-0x40) : spread(fractions + scale);
    scale += Source::kScales;
    unroll<0, kChunkTiles>([&](auto tile) VN_INLINED {
      constexpr int kTile = decltype(tile)::kValue;
      const __m512i codes = kTile == 0 ? words : _mm512_srli_epi16(words, 4 * kTile);
      const __m512i high = _mm512_permutexvar_epi16(codes, constants.highest);
      _mm512_store_si512(to + kTile * kTileNumbers, _mm512_subs_epu16(_mm512_and_si512(high, fraction), distance));
    });
  }
  static float chunk_scale(const Cursor<Source>&) { return 1.0F; }
  [[nodiscard]] unsigned flags(const Cursor<Source>&) const { return unfit ? kNeedsFloats : kFits; }
};

}  // namespace
