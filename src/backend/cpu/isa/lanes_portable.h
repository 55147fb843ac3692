// 16 floats and 16 codes in plain C++: what the kernels are written over, for any CPU. See lanes_avx2.h,
// lanes_avx512.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace {

/// 16 codes of up to 8 bits.
struct Codes {
  std::uint8_t code[16];

  static Codes load_bytes(const std::byte* bytes) {
    Codes c;
    std::memcpy(c.code, bytes, 16);
    return c;
  }
  /// 8 bytes: the low and the high nibble of each byte are neighbours.
  static Codes load_nibble_pairs(const std::byte* bytes) {
    Codes c;
    for (int i = 0; i < 8; ++i) {
      c.code[2 * i] = static_cast<std::uint8_t>(bytes[i]) & 15;
      c.code[2 * i + 1] = static_cast<std::uint8_t>(bytes[i]) >> 4;
    }
    return c;
  }
  /// 8 bytes: all low nibbles, then all high ones.
  static Codes load_nibble_halves(const std::byte* bytes) {
    Codes c;
    for (int i = 0; i < 8; ++i) {
      c.code[i] = static_cast<std::uint8_t>(bytes[i]) & 15;
      c.code[i + 8] = static_cast<std::uint8_t>(bytes[i]) >> 4;
    }
    return c;
  }
  /// 16 bytes: their low, or their high nibbles.
  static Codes load_low_nibbles(const std::byte* bytes) {
    Codes c = load_bytes(bytes);
    for (std::uint8_t& code : c.code) code &= 15;
    return c;
  }
  static Codes load_high_nibbles(const std::byte* bytes) {
    Codes c = load_bytes(bytes);
    for (std::uint8_t& code : c.code) code = static_cast<std::uint8_t>(code >> 4);
    return c;
  }
  /// Codes below 16, each with 16 added where its bit of `bits` is set.
  [[nodiscard]] Codes with_bit4(std::uint16_t bits) const {
    Codes c;
    for (int i = 0; i < 16; ++i) c.code[i] = static_cast<std::uint8_t>(code[i] | (bits >> i & 1) << 4);
    return c;
  }
};

struct Lanes {
  static constexpr int kTileRows = 2;
  static constexpr int kTileTokens = 1;
  static constexpr int kChains = 4;  ///< independent sums that hide the latency of fma()
  static constexpr const char* kName = "portable";

  float lane[16];

  template <class Function>
  static Lanes each(Function function) {
    Lanes r;
    for (int i = 0; i < 16; ++i) r.lane[i] = function(i);
    return r;
  }

  static Lanes all(float value) {
    return each([=](int) { return value; });
  }
  static Lanes load(const float* from) {
    Lanes r;
    std::memcpy(r.lane, from, sizeof(r.lane));
    return r;
  }
  /// The first `count` (0..16) floats, then zeros.
  static Lanes load_first(const float* from, std::int64_t count) {
    return each([=](int i) { return i < count ? from[i] : 0.0F; });
  }
  void store(float* to) const { std::memcpy(to, lane, sizeof(lane)); }
  void store_first(float* to, std::int64_t count) const {
    for (int i = 0; i < count; ++i) to[i] = lane[i];
  }

  static Lanes load_bf16(const std::byte* from) {
    return each([=](int i) {
      std::uint16_t code;
      std::memcpy(&code, from + 2 * i, 2);
      return __builtin_bit_cast(float, static_cast<std::uint32_t>(code) << 16);
    });
  }
  static float half_to_float(std::uint16_t code) {
    // 2^112 moves the exponent to a float's; subnormals become normal on the way.
    const float magnitude = __builtin_bit_cast(float, static_cast<std::uint32_t>(code & 0x7FFF) << 13) * 0x1p112F;
    std::uint32_t bits = __builtin_bit_cast(std::uint32_t, magnitude);
    if (magnitude >= 0x1p16F) bits |= 0x7F800000;  // infinity and NaN
    return __builtin_bit_cast(float, bits | static_cast<std::uint32_t>(code & 0x8000) << 16);
  }
  static Lanes load_f16(const std::byte* from) {
    return each([=](int i) {
      std::uint16_t code;
      std::memcpy(&code, from + 2 * i, 2);
      return half_to_float(code);
    });
  }
  static Lanes from_int8(const Codes& codes) {
    return each([&](int i) { return static_cast<float>(static_cast<std::int8_t>(codes.code[i])); });
  }
  static Lanes lookup16(const float* table, const Codes& codes) {
    return each([&](int i) { return table[codes.code[i]]; });
  }
  static Lanes lookup256(const float* table, const Codes& codes) { return lookup16(table, codes); }

  friend Lanes operator+(const Lanes& a, const Lanes& b) {
    return each([&](int i) { return a.lane[i] + b.lane[i]; });
  }
  friend Lanes operator-(const Lanes& a, const Lanes& b) {
    return each([&](int i) { return a.lane[i] - b.lane[i]; });
  }
  friend Lanes operator*(const Lanes& a, const Lanes& b) {
    return each([&](int i) { return a.lane[i] * b.lane[i]; });
  }
  friend Lanes operator/(const Lanes& a, const Lanes& b) {
    return each([&](int i) { return a.lane[i] / b.lane[i]; });
  }
  /// a * b + c, rounded once where the CPU can.
  static Lanes fma(const Lanes& a, const Lanes& b, const Lanes& c) {
    return each([&](int i) { return a.lane[i] * b.lane[i] + c.lane[i]; });
  }
  /// The bound where x is beyond it, else x; NaN stays NaN.
  static Lanes at_most(const Lanes& x, float bound) {
    return each([&](int i) { return x.lane[i] > bound ? bound : x.lane[i]; });
  }
  static Lanes at_least(const Lanes& x, float bound) {
    return each([&](int i) { return x.lane[i] < bound ? bound : x.lane[i]; });
  }
  /// x * 2^n, where n = biased - 1.5 * 2^23 is a whole number in [-160, 160].
  static Lanes times_power_of_two(const Lanes& x, const Lanes& biased) {
    return each([&](int i) {
      const std::int32_t n = static_cast<std::int32_t>(__builtin_bit_cast(std::uint32_t, biased.lane[i]) - 0x4B400000U);
      const std::int32_t half = n >> 1;
      const auto power = [](std::int32_t e) {
        return __builtin_bit_cast(float, (static_cast<std::uint32_t>(e) + 127U) << 23);
      };
      return x.lane[i] * power(half) * power(n - half);
    });
  }
  static Lanes round_to_bf16(const Lanes& x) {
    return each([&](int i) {
      const std::uint32_t bits = __builtin_bit_cast(std::uint32_t, x.lane[i]);
      const std::uint32_t rounded =
          (bits & 0x7FFFFFFF) > 0x7F800000 ? bits | 0x400000 : bits + 0x7FFF + (bits >> 16 & 1);
      return __builtin_bit_cast(float, rounded & 0xFFFF0000);
    });
  }
  /// The sum of all lanes, in the same order on every instruction set.
  [[nodiscard]] float sum() const {
    float s[8];
    for (int i = 0; i < 8; ++i) s[i] = lane[i] + lane[i + 8];
    for (int i = 0; i < 4; ++i) s[i] += s[i + 4];
    return (s[0] + s[2]) + (s[1] + s[3]);
  }
};

}  // namespace
