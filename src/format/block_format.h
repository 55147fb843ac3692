// The vocabulary in which a format header states its geometry, and the generic code that follows from it.
//
// A format is a struct of constants. There are two kinds:
//  * coded formats: value = Element(code) * Scale(scale code). They name both codecs and describe each layout they come
//    in by a nested struct (Plain, Interleaved, Separate); everything else is derived from that.
//  * formats that don't fit "code times scale" supply only decode_block() for an interleaved block.
// Both kinds state kName, kGgufType, kBlockValues and kBlockBytes, and kOuterScale.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "format/host_device.h"
#include "format/scalar_codecs.h"

namespace vernier {

/// kGgufType of a format that GGUF has no type for.
inline constexpr int kNoGgufType = -1;

/// Whether weights of a format carry a second-level fp32 factor (Weight::outer).
enum class OuterScaleUse : std::uint8_t { kNone, kOptional, kRequired };

/// Which values share a byte of 4-bit codes. In either case the first named value has the low nibble.
enum class NibbleOrder : std::uint8_t {
  kNone,    ///< codes are whole bytes
  kPairs,   ///< byte j: values 2j and 2j+1
  kHalves,  ///< byte j of a group of n values (one scale): values j and j + n/2
};

/// Scale of a coded format without block scales.
struct NoScale {};

/// Scale of a coded format whose scales form a grid that only the Weight knows: its block size and dtype are
/// Weight::scale_block_rows, scale_block_cols and scale_dtype.
struct GridScale {};

/// What a layout struct states; nested types of formats derive from it with their own numbers.
/// kScalesAt and kCodesAt are byte offsets from a block's start (Interleaved), and 0 in the other layouts, where
/// codes and scales have arrays of their own.
template <NibbleOrder kOrder, int kScalesOffset = 0, int kCodesOffset = 0>
struct CodeLayout {
  static constexpr NibbleOrder kNibbles = kOrder;
  static constexpr int kScalesAt = kScalesOffset;
  static constexpr int kCodesAt = kCodesOffset;
};

/// Base of coded formats. kGroup: consecutive values of a row that share a block scale (0 without block scales, or
/// where a grid says it).
template <class ElementCodec, class ScaleCodec, int kGroup>
struct CodedFormat {
  using Element = ElementCodec;
  using Scale = ScaleCodec;
  static constexpr int kScaleValues = kGroup;
};

template <class F>
concept HasCodes = requires {
  typename F::Element;
};
/// Interleaved blocks of 32 values (F16 scale at byte 0): 4-bit codes in halves at kCodesAt, value = scale * (code -
/// kCentre), or with kHasMinimum scale * code + the F16 at byte 2; with kHasHighBits, bit i of the u32 at kHighAt is
/// bit 4 of code i. decode_block() says the same; kernels use these constants to do it faster.
template <class F>
concept HasAffineCodes = requires {
  F::kCentre;
};
/// Interleaved blocks of eight sub-blocks of 32 4-bit codes, each with a scale and a minimum (unpack_scales()) under
/// the F16 factors at bytes 0 and 2: value = (factor * scale) * code - factor * minimum. Sub-blocks 2b and 2b + 1 are
/// the low and high nibbles of 32 bytes at kCodesAt + 32 b.
template <class F>
concept HasScaleMinimumNibbles = requires(const std::byte* block, std::uint64_t (&out)[2]) {
  F::unpack_scales(block, out);
  requires !F::kHasHighBits;
};
/// Interleaved blocks of 256 6-bit codes: the low four bits at byte 0, 64 bytes for each
/// half of the block, two of its quarters in low nibbles, then two in high ones; the top two bits at kTopBitsAt, 32
/// bytes a half, two bits a quarter. value = (F16 factor at kFactorAt * signed byte at kScalesAt of each 16 values) *
/// (code - 32).
template <class F>
concept HasSixBitCodes = requires {
  F::kTopBitsAt;
};
template <class F>
concept HasPlain = requires {
  typename F::Plain;
};
template <class F>
concept HasInterleaved = requires(const std::byte* block, float* out) {
  F::decode_block(block, out);
};
template <class F>
concept HasSeparate = requires {
  typename F::Separate;
};

/// Little-endian loads from unaligned file bytes.
VN_HOST_DEVICE constexpr std::uint8_t load_u8(const std::byte* bytes) { return static_cast<std::uint8_t>(*bytes); }
VN_HOST_DEVICE constexpr std::uint16_t load_u16(const std::byte* bytes) {
  return static_cast<std::uint16_t>(load_u8(bytes) | load_u8(bytes + 1) << 8);
}
VN_HOST_DEVICE constexpr std::uint32_t load_u32(const std::byte* bytes) {
  return load_u16(bytes) | static_cast<std::uint32_t>(load_u16(bytes + 2)) << 16;
}
VN_HOST_DEVICE constexpr float load_f16(const std::byte* bytes) { return F16Codec::decode(load_u16(bytes)); }

/// Code `i` of an array of whole-byte codes of a codec.
template <class Codec>
VN_HOST_DEVICE constexpr typename Codec::Code load_element(const std::byte* bytes, std::int64_t i) {
  static_assert(Codec::kBits == 8 || Codec::kBits == 16 || Codec::kBits == 32);
  if constexpr (Codec::kBits == 8) {
    return load_u8(bytes + i);
  } else if constexpr (Codec::kBits == 16) {
    return load_u16(bytes + 2 * i);
  } else {
    return load_u32(bytes + 4 * i);
  }
}

/// Where a code lies: the byte, and the bit within it that is the code's lowest.
struct CodePosition {
  std::int64_t byte;
  int shift;
};

/// The position of value i: of a block (Interleaved), or of a row (Separate, Plain).
template <class F, class Layout>
VN_HOST_DEVICE constexpr CodePosition code_position(std::int64_t i) {
  if constexpr (Layout::kNibbles == NibbleOrder::kNone) {
    return {Layout::kCodesAt + i * (F::Element::kBits / 8), 0};
  } else if constexpr (Layout::kNibbles == NibbleOrder::kPairs) {
    return {Layout::kCodesAt + i / 2, static_cast<int>(i % 2) * 4};
  } else {
    constexpr int kHalf = F::kScaleValues / 2;
    const std::int64_t group = i / F::kScaleValues;
    return {Layout::kCodesAt + group * kHalf + i % kHalf, static_cast<int>(i % F::kScaleValues / kHalf) * 4};
  }
}

/// The code of value i, with `codes` the start of its block (Interleaved) or row.
template <class F, class Layout>
VN_HOST_DEVICE constexpr typename F::Element::Code load_code(const std::byte* codes, std::int64_t i) {
  if constexpr (Layout::kNibbles == NibbleOrder::kNone) {
    return load_element<typename F::Element>(codes + Layout::kCodesAt, i);
  } else {
    const CodePosition at = code_position<F, Layout>(i);
    return static_cast<typename F::Element::Code>(load_u8(codes + at.byte) >> at.shift & 0xF);
  }
}

/// The code of the scale of group `group` (value i has group i / kScaleValues), with `scales` the start of the block
/// (Interleaved) or of the row's scales (Separate).
template <class F, class Layout>
VN_HOST_DEVICE constexpr typename F::Scale::Code load_scale_code(const std::byte* scales, std::int64_t group) {
  return load_element<typename F::Scale>(scales + Layout::kScalesAt, group);
}

/// Values begin .. begin + count of a block or row, without a second-level factor. `codes` and `scales` as above (the
/// same pointer for Interleaved). Real is float or double; the product is rounded to Real, which is exact for double,
/// and for float too in all formats here as long as it doesn't overflow.
template <class F, class Layout, class Real>
VN_HOST_DEVICE constexpr void decode_codes(const std::byte* codes, const std::byte* scales, std::int64_t begin,
                                           std::int64_t count, Real* out) {
  const std::int64_t end = begin + count;
  for (std::int64_t i = begin; i < end;) {
    const std::int64_t group = i / F::kScaleValues;
    const std::int64_t group_end = (group + 1) * F::kScaleValues < end ? (group + 1) * F::kScaleValues : end;
    const Real scale = static_cast<Real>(decode_code<typename F::Scale>(load_scale_code<F, Layout>(scales, group)));
    for (; i < group_end; ++i) {
      *out++ = static_cast<Real>(decode_code<typename F::Element>(load_code<F, Layout>(codes, i))) * scale;
    }
  }
}

/// a * b + c with two roundings, as ggml's formulas are defined, whatever the compiler would like to fuse.
/// (Host code is built with -ffp-contract=off.)
VN_HOST_DEVICE inline float multiply_then_add(float a, float b, float c) {
#if defined(__CUDA_ARCH__)
  return __fadd_rn(__fmul_rn(a, b), c);
#else
  return a * b + c;
#endif
}

}  // namespace vernier
