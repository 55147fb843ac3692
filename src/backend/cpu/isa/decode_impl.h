// Decoding of weight rows over Lanes, derived from the format headers: no format is named here.
// Included by the unit of each instruction set after its lanes; see kernels.h for the rules.
#pragma once

#include "backend/cpu/isa/kernels.h"
#include "format/format_list.h"

namespace {

namespace vn = vernier;  // the name that this unit gave to the format headers

/// Values begin.. of whole-byte codes, one at a time: what is left after whole vectors.
template <class Codec>
void decode_rest(const std::byte* codes, std::int64_t begin, std::int64_t cols, float* out) {
  for (std::int64_t i = begin; i < cols; ++i) out[i] = Codec::decode(vn::load_element<Codec>(codes, i));
}

template <class F>
void decode_plain(const std::byte* codes, const std::byte* /*scales*/, std::int64_t cols, float* out) {
  using Codec = typename F::Element;
  std::int64_t i = 0;
  for (; i + 16 <= cols; i += 16) {
    const std::byte* at = codes + i * (Codec::kBits / 8);
    Lanes values;
    if constexpr (std::is_same_v<Codec, vn::F32Codec>) {
      __builtin_memcpy(out + i, at, 64);
      continue;
    } else if constexpr (std::is_same_v<Codec, vn::BF16Codec>) {
      values = Lanes::load_bf16(at);
    } else if constexpr (std::is_same_v<Codec, vn::F16Codec>) {
      values = Lanes::load_f16(at);
    } else {
      values = Lanes::lookup256(&vn::kDecodeTable<Codec>[0], Codes::load_bytes(at));
    }
    values.store(out + i);
  }
  decode_rest<Codec>(codes, i, cols, out);
}

/// Values of one group of codes that share a scale, times that scale.
template <class F, class Layout>
void decode_group(const std::byte* codes, float scale, float* out) {
  using Codec = typename F::Element;
  const Lanes factor = Lanes::all(scale);
  if constexpr (Layout::kNibbles == vn::NibbleOrder::kNone) {
    for (int i = 0; i < F::kScaleValues; i += 16) {
      const Codes c = Codes::load_bytes(codes + i);
      // A signed byte needs no table.
      if constexpr (Codec::decode(255) == -1.0F && Codec::decode(128) == -128.0F) {
        (Lanes::from_int8(c) * factor).store(out + i);
      } else {
        (Lanes::lookup256(&vn::kDecodeTable<Codec>[0], c) * factor).store(out + i);
      }
    }
  } else {
    const float* table = &vn::kDecodeTable<Codec>[0];
    if constexpr (Layout::kNibbles == vn::NibbleOrder::kPairs) {
      for (int i = 0; i < F::kScaleValues; i += 16) {
        (Lanes::lookup16(table, Codes::load_nibble_pairs(codes + i / 2)) * factor).store(out + i);
      }
    } else if constexpr (F::kScaleValues == 16) {
      (Lanes::lookup16(table, Codes::load_nibble_halves(codes)) * factor).store(out);
    } else {
      static_assert(F::kScaleValues == 32);
      (Lanes::lookup16(table, Codes::load_low_nibbles(codes)) * factor).store(out);
      (Lanes::lookup16(table, Codes::load_high_nibbles(codes)) * factor).store(out + 16);
    }
  }
}

template <class F, class Layout>
float group_scale(const std::byte* scales, std::int64_t group) {
  const auto code = vn::load_scale_code<F, Layout>(scales, group);
  if constexpr (std::is_same_v<typename F::Scale, vn::F16Codec>) {
    return Lanes::half_to_float(code);
  } else {
    return vn::kDecodeTable<typename F::Scale>[code];
  }
}

/// A block of a format with affine codes.
template <class F>
void decode_affine_block(const std::byte* block, float* out) {
  Codes low = Codes::load_low_nibbles(block + F::kCodesAt);
  Codes high = Codes::load_high_nibbles(block + F::kCodesAt);
  if constexpr (F::kHasHighBits) {
    low = low.with_bit4(vn::load_u16(block + F::kHighAt));
    high = high.with_bit4(vn::load_u16(block + F::kHighAt + 2));
  }
  const Lanes scale = Lanes::all(Lanes::half_to_float(vn::load_u16(block)));
  if constexpr (F::kHasMinimum) {
    // Two roundings, as the format is defined.
    const Lanes minimum = Lanes::all(Lanes::half_to_float(vn::load_u16(block + 2)));
    (scale * Lanes::from_int8(low) + minimum).store(out);
    (scale * Lanes::from_int8(high) + minimum).store(out + 16);
  } else {
    const Lanes centre = Lanes::all(static_cast<float>(F::kCentre));
    (scale * (Lanes::from_int8(low) - centre)).store(out);
    (scale * (Lanes::from_int8(high) - centre)).store(out + 16);
  }
}

/// 16 neighbours in a quarter of half a block.
template <class F, int kQuarter>
void decode_six_bits(const std::byte* low, const std::byte* top, float factor, float* out) {
  Codes codes = kQuarter < 2 ? Codes::load_low_nibbles(low) : Codes::load_high_nibbles(low);
  codes = codes.template with_top_bits<kQuarter * 2>(top);
  (Lanes::all(factor) * (Lanes::from_int8(codes) - Lanes::all(32.0F))).store(out);
}

template <class F>
void decode_six_bit_block(const std::byte* block, float* out) {
  const float scale = Lanes::half_to_float(vn::load_u16(block + F::kFactorAt));
  for (int i = 0; i < 4; ++i) {  // of each half and 16 columns of 32: a vector of each quarter
    const int half = i / 2;
    const int column = i % 2 * 16;
    const std::byte* low = block + half * 64 + column;
    const std::byte* top = block + F::kTopBitsAt + half * 32 + column;
    const std::byte* scales = block + F::kScalesAt + half * 8 + i % 2;
    const auto factor = [&](int quarter) {
      return scale * static_cast<float>(static_cast<std::int8_t>(vn::load_u8(scales + quarter * 2)));
    };
    float* to = out + half * 128 + column;
    decode_six_bits<F, 0>(low, top, factor(0), to);
    decode_six_bits<F, 1>(low + 32, top, factor(1), to + 32);
    decode_six_bits<F, 2>(low, top, factor(2), to + 64);
    decode_six_bits<F, 3>(low + 32, top, factor(3), to + 96);
  }
}

template <class F>
void decode_interleaved(const std::byte* codes, const std::byte* /*scales*/, std::int64_t cols, float* out) {
  for (std::int64_t i = 0; i < cols; i += F::kBlockValues, codes += F::kBlockBytes) {
    if constexpr (vn::HasCodes<F>) {
      using Layout = typename F::Interleaved;
      constexpr std::int64_t kGroupBytes = F::kScaleValues * F::Element::kBits / 8;
      for (int group = 0; group < F::kBlockValues / F::kScaleValues; ++group) {
        decode_group<F, Layout>(codes + Layout::kCodesAt + group * kGroupBytes, group_scale<F, Layout>(codes, group),
                                out + i + group * F::kScaleValues);
      }
    } else if constexpr (vn::HasSixBitCodes<F>) {
      decode_six_bit_block<F>(codes, out + i);
    } else if constexpr (vn::HasAffineCodes<F>) {
      decode_affine_block<F>(codes, out + i);
    } else {
      F::decode_block(codes, out + i);
    }
  }
}

template <class F>
void decode_separate(const std::byte* codes, const std::byte* scales, std::int64_t cols, float* out) {
  using Layout = typename F::Separate;
  if constexpr (std::is_same_v<typename F::Scale, vn::GridScale>) {
    static_assert(Layout::kNibbles == vn::NibbleOrder::kNone);
    decode_plain<F>(codes, scales, cols, out);
  } else {
    constexpr std::int64_t kGroupBytes = F::kScaleValues * F::Element::kBits / 8;
    for (std::int64_t group = 0; group < cols / F::kScaleValues; ++group) {
      decode_group<F, Layout>(codes + group * kGroupBytes, group_scale<F, Layout>(scales, group),
                              out + group * F::kScaleValues);
    }
  }
}

/// The decoders of a format by layout, null where it hasn't the layout.
struct DecodeRowTriple {
  vernier_isa::DecodeRow of[3];
};

template <class F>
constexpr DecodeRowTriple decoders_of() {
  DecodeRowTriple row{};
  if constexpr (vn::HasPlain<F>) row.of[static_cast<unsigned>(vn::WeightLayout::kPlain)] = decode_plain<F>;
  if constexpr (vn::HasInterleaved<F>) {
    row.of[static_cast<unsigned>(vn::WeightLayout::kInterleaved)] = decode_interleaved<F>;
  }
  if constexpr (vn::HasSeparate<F>) row.of[static_cast<unsigned>(vn::WeightLayout::kSeparate)] = decode_separate<F>;
  return row;
}

template <class List>
struct DecoderTable;
template <class... Formats>
struct DecoderTable<vn::FormatTypes<Formats...>> {
  static constexpr unsigned kCount = sizeof...(Formats);
  static constexpr DecodeRowTriple kRows[kCount] = {decoders_of<Formats>()...};
};

[[maybe_unused]] vernier_isa::DecodeRow find_decoder(unsigned format, unsigned layout) {
  using Table = DecoderTable<vn::FormatList>;
  return format < Table::kCount && layout < 3 ? Table::kRows[format].of[layout] : nullptr;
}

}  // namespace
