// The small number formats that codes and scales are made of: exact conversions, the same on host and device.
// Nothing here knows about blocks, layouts or files.
//
//   codec  sign exponent mantissa  bias  special values
//   E2M1    1      2        1        1   none
//   E4M3    1      4        3        7   0x7F and 0xFF are NaN; no infinity; largest 448
//   UE4M3   -      4        3        7   E4M3 whose sign bit must be clear: a block scale
//   E5M2    1      5        2       15   as IEEE: infinity 0x7C, NaN above
//   E8M0    -      8        0      127   0xFF is NaN; no zero: 0x00 is 2^-127
//   BF16    1      8        7      127   as IEEE
//   F16     1      5       10       15   as IEEE
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "format/host_device.h"

namespace vernier {

namespace codec_detail {

/// 2^exponent as a float, for exponents of normal floats (-126..127).
VN_HOST_DEVICE constexpr float power_of_two(int exponent) {
  return __builtin_bit_cast(float, static_cast<std::uint32_t>(exponent + 127) << 23);
}

inline constexpr std::uint32_t kQuietNan = 0x7FC00000;

/// The value of a code as if its largest exponent were an ordinary one (codecs with special values handle them first).
/// Subnormal codes and the sign of zero are kept.
template <int kExponentBits, int kMantissaBits>
VN_HOST_DEVICE constexpr float decode_minifloat(std::uint32_t code) {
  constexpr int kBias = (1 << (kExponentBits - 1)) - 1;
  const std::uint32_t sign = code >> (kExponentBits + kMantissaBits) & 1;
  const std::uint32_t exponent = code >> kMantissaBits & ((1u << kExponentBits) - 1);
  const std::uint32_t mantissa = code & ((1u << kMantissaBits) - 1);
  std::uint32_t bits = 0;
  if (exponent == 0) {
    bits = __builtin_bit_cast(std::uint32_t, static_cast<float>(mantissa) * power_of_two(1 - kBias - kMantissaBits));
  } else {
    bits = (exponent + (127 - kBias)) << 23 | mantissa << (23 - kMantissaBits);
  }
  return __builtin_bit_cast(float, sign << 31 | bits);
}

/// The code nearest to `value` (ties to even), where magnitudes beyond `largest` become `largest`. Not for NaN.
template <int kExponentBits, int kMantissaBits>
VN_HOST_DEVICE constexpr std::uint32_t encode_minifloat(float value, std::uint32_t largest) {
  constexpr int kBias = (1 << (kExponentBits - 1)) - 1;
  const std::uint32_t bits = __builtin_bit_cast(std::uint32_t, value);
  const std::uint32_t sign = bits >> 31 << (kExponentBits + kMantissaBits);
  int exponent = static_cast<int>(bits >> 23 & 0xFF) - 127 + kBias;
  int shift = 23 - kMantissaBits;
  if (exponent < 1) {  // a subnormal code: its unit stays that of exponent 1
    shift += 1 - exponent;
    exponent = 1;
  }
  if (shift > 24) return sign;  // below half of the smallest code
  const std::uint32_t mantissa = (bits & 0x7FFFFF) | 0x800000;
  const std::uint32_t rest = mantissa & ((1u << shift) - 1);
  const std::uint32_t half = 1u << (shift - 1);
  std::uint32_t units = mantissa >> shift;
  if (rest > half || (rest == half && (units & 1) != 0)) ++units;
  // `units` still has its leading one where the code is normal: adding instead of masking lets it carry.
  const std::uint32_t magnitude = (static_cast<std::uint32_t>(exponent - 1) << kMantissaBits) + units;
  return sign | (magnitude < largest ? magnitude : largest);
}

}  // namespace codec_detail

/// Every codec has: Code (its storage), kBits, decode(code) -> float (exact) and is_finite(code); those of block
/// formats also kMax, the largest finite magnitude. Codecs used as block scales have is_legal_scale(code).
struct E2M1Codec {
  using Code = std::uint8_t;
  static constexpr int kBits = 4;
  static constexpr float kMax = 6.0f;
  VN_HOST_DEVICE static constexpr float decode(Code code) { return codec_detail::decode_minifloat<2, 1>(code & 0xF); }
  VN_HOST_DEVICE static constexpr bool is_finite(Code) { return true; }
};

struct E4M3Codec {
  using Code = std::uint8_t;
  static constexpr int kBits = 8;
  static constexpr float kMax = 448.0f;
  VN_HOST_DEVICE static constexpr bool is_finite(Code code) { return (code & 0x7F) != 0x7F; }
  VN_HOST_DEVICE static constexpr float decode(Code code) {
    if (!is_finite(code)) return __builtin_bit_cast(float, codec_detail::kQuietNan);
    return codec_detail::decode_minifloat<4, 3>(code);
  }
  /// Nearest even, saturating at 448: an unclamped conversion would turn large values into NaN.
  VN_HOST_DEVICE static constexpr Code encode(float value) {
    if (value != value) return 0x7F;
    return static_cast<Code>(codec_detail::encode_minifloat<4, 3>(value, 0x7E));
  }
};

/// E4M3 in the place of a block scale, where a set sign bit means a damaged file. decode() honours the sign.
struct UE4M3Codec {
  using Code = std::uint8_t;
  static constexpr int kBits = 8;
  static constexpr float kMax = 448.0f;
  static constexpr bool is_legal_scale(Code code) { return code < 0x7F; }
  VN_HOST_DEVICE static constexpr bool is_finite(Code code) { return E4M3Codec::is_finite(code); }
  VN_HOST_DEVICE static constexpr float decode(Code code) { return E4M3Codec::decode(code); }
};

struct E5M2Codec {
  using Code = std::uint8_t;
  static constexpr int kBits = 8;
  static constexpr float kMax = 57344.0f;
  VN_HOST_DEVICE static constexpr bool is_finite(Code code) { return (code & 0x7C) != 0x7C; }
  VN_HOST_DEVICE static constexpr float decode(Code code) {
    if (!is_finite(code)) {
      const std::uint32_t sign = static_cast<std::uint32_t>(code & 0x80) << 24;
      return __builtin_bit_cast(float, sign | ((code & 3) == 0 ? 0x7F800000u : codec_detail::kQuietNan));
    }
    return codec_detail::decode_minifloat<5, 2>(code);
  }
};

struct E8M0Codec {
  using Code = std::uint8_t;
  static constexpr int kBits = 8;
  static constexpr float kMax = 0x1p127f;
  VN_HOST_DEVICE static constexpr bool is_finite(Code code) { return code != 0xFF; }
  static constexpr bool is_legal_scale(Code code) { return is_finite(code); }
  VN_HOST_DEVICE static constexpr float decode(Code code) {
    if (!is_finite(code)) return __builtin_bit_cast(float, codec_detail::kQuietNan);
    // 2^-127 is half the smallest normal float: a subnormal.
    const std::uint32_t bits = code == 0 ? 0x00400000u : static_cast<std::uint32_t>(code) << 23;
    return __builtin_bit_cast(float, bits);
  }
};

struct BF16Codec {
  using Code = std::uint16_t;
  static constexpr int kBits = 16;
  VN_HOST_DEVICE static constexpr bool is_finite(Code code) { return (code & 0x7F80) != 0x7F80; }
  VN_HOST_DEVICE static constexpr float decode(Code code) {
    return __builtin_bit_cast(float, static_cast<std::uint32_t>(code) << 16);
  }
  /// Nearest even; large values become infinity, a NaN stays a (quiet) NaN.
  VN_HOST_DEVICE static constexpr Code encode(float value) {
    const std::uint32_t bits = __builtin_bit_cast(std::uint32_t, value);
    if ((bits & 0x7FFFFFFF) > 0x7F800000) return static_cast<Code>(bits >> 16 | 0x40);
    return static_cast<Code>((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
  }
};

struct F16Codec {
  using Code = std::uint16_t;
  static constexpr int kBits = 16;
  static constexpr float kMax = 65504.0f;
  VN_HOST_DEVICE static constexpr bool is_finite(Code code) { return (code & 0x7C00) != 0x7C00; }
  static constexpr bool is_legal_scale(Code code) { return is_finite(code); }
  VN_HOST_DEVICE static constexpr float decode(Code code) {
    if (!is_finite(code)) {
      const std::uint32_t sign = static_cast<std::uint32_t>(code & 0x8000) << 16;
      return __builtin_bit_cast(float, sign | 0x7F800000u | static_cast<std::uint32_t>(code & 0x3FF) << 13);
    }
    return codec_detail::decode_minifloat<5, 10>(code);
  }
  /// Nearest even with subnormals; large values become infinity, a NaN stays a (quiet) NaN.
  VN_HOST_DEVICE static constexpr Code encode(float value) {
    const std::uint32_t bits = __builtin_bit_cast(std::uint32_t, value);
    if ((bits & 0x7FFFFFFF) > 0x7F800000) {
      return static_cast<Code>((bits >> 16 & 0x8000) | 0x7E00 | (bits >> 13 & 0x3FF));
    }
    return static_cast<Code>(codec_detail::encode_minifloat<5, 10>(value, 0x7C00));
  }
};

struct F32Codec {
  using Code = std::uint32_t;
  static constexpr int kBits = 32;
  VN_HOST_DEVICE static constexpr bool is_finite(Code code) { return (code & 0x7F800000) != 0x7F800000; }
  VN_HOST_DEVICE static constexpr float decode(Code code) { return __builtin_bit_cast(float, code); }
};

/// The values of all codes of a codec of at most 8 bits, built by the compiler. Host only: device code calls decode().
template <class Codec>
inline constexpr auto kDecodeTable = [] {
  static_assert(Codec::kBits <= 8);
  std::array<float, std::size_t{1} << Codec::kBits> table{};
  for (std::size_t code = 0; code < table.size(); ++code) {
    table[code] = Codec::decode(static_cast<typename Codec::Code>(code));
  }
  return table;
}();

/// decode() through the table where there is one.
template <class Codec>
VN_HOST_DEVICE constexpr float decode_code(typename Codec::Code code) {
#if !defined(__CUDA_ARCH__)
  if constexpr (Codec::kBits <= 8) return kDecodeTable<Codec>[code];
#endif
  return Codec::decode(code);
}

}  // namespace vernier
