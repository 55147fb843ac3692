// 16 floats and 16 codes in plain C++: what the kernels are written over, for any CPU. See lanes_avx2.h,
// lanes_avx512.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "format/scalar_codecs.h"

namespace {

/// 16 codes of up to 8 bits.
struct Codes {
  std::uint8_t code[16];

  static Codes load_bytes(const std::byte* bytes) {
    Codes c;
    std::memcpy(c.code, bytes, 16);
    return c;
  }
  static Codes from_words(const std::uint64_t (&words)[2]) {
    Codes c;
    std::memcpy(c.code, words, 16);
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
  /// Codes below 16 with bits kAt and kAt + 1 of 16 bytes as their bits 4 and 5.
  template <int kAt>
  [[nodiscard]] Codes with_top_bits(const std::byte* from) const {
    Codes c;
    for (int i = 0; i < 16; ++i) {
      c.code[i] = static_cast<std::uint8_t>(code[i] | (static_cast<std::uint8_t>(from[i]) >> kAt & 3) << 4);
    }
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
  static constexpr int kAttentionRows = 2;
  static constexpr int kAttentionVectors = 1;
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
  static Lanes load_e4m3(const std::byte* from) {
    return each([=](int i) {
      const auto code = static_cast<std::uint32_t>(from[i]);
      // As a float whose exponent is too small by 120; subnormals become normal on the way.
      const float magnitude = __builtin_bit_cast(float, (code & 0x7F) << 20) * 0x1p120F;
      std::uint32_t bits = __builtin_bit_cast(std::uint32_t, magnitude);
      if ((code & 0x7F) == 0x7F) bits = 0x7FC00000;
      return __builtin_bit_cast(float, bits | (code & 0x80) << 24);
    });
  }
  /// 64 bytes as they are.
  static Lanes load_words(const std::byte* from) {
    Lanes r;
    std::memcpy(r.lane, from, sizeof(r.lane));
    return r;
  }
  /// The bf16 in the low, or in the high half of each 32-bit word.
  static Lanes low_bf16(const Lanes& words) {
    return each(
        [&](int i) { return __builtin_bit_cast(float, __builtin_bit_cast(std::uint32_t, words.lane[i]) << 16); });
  }
  static Lanes high_bf16(const Lanes& words) {
    return each([&](int i) {
      return __builtin_bit_cast(float, __builtin_bit_cast(std::uint32_t, words.lane[i]) & 0xFFFF0000);
    });
  }
  /// Words of two floats that bf16 holds exactly.
  static Lanes pair_bf16(const Lanes& low, const Lanes& high) {
    return each([&](int i) {
      return __builtin_bit_cast(float, __builtin_bit_cast(std::uint32_t, low.lane[i]) >> 16 |
                                           (__builtin_bit_cast(std::uint32_t, high.lane[i]) & 0xFFFF0000));
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

  static Lanes load_int8(const std::byte* from) { return from_int8(Codes::load_bytes(from)); }
  /// The bytes of 16 codes of a block scale.
  struct ScaleBytes {
    std::byte bytes[32];
  };
  template <class Codec>
  static ScaleBytes load_scales(const std::byte* from) {
    ScaleBytes scales = {};
    std::memcpy(scales.bytes, from, 16 * sizeof(typename Codec::Code));
    return scales;
  }
  template <int kWords>
  static ScaleBytes join_words(const std::uint64_t (&words)[kWords]) {
    ScaleBytes scales = {};
    std::memcpy(scales.bytes, words, sizeof(words));
    return scales;
  }
  template <class Codec>
  static Lanes decode_scales(const ScaleBytes& scales) {
    return each([&](int i) {
      typename Codec::Code code;
      std::memcpy(&code, scales.bytes + i * static_cast<int>(sizeof(code)), sizeof(code));
      return Codec::decode(code);
    });
  }
  /// base[index[lane]]
  static Lanes gather(const float* base, const std::int32_t* index) {
    return each([=](int i) { return base[index[i]]; });
  }
  /// gather() from kCount, 4 or 8, floats; more of them may be read.
  template <int kCount>
  static Lanes spread(const float* from, const std::int32_t* index) {
    return gather(from, index);
  }
  /// 8 floats from one place, 8 from another.
  static Lanes join(const float* low, const float* high) {
    return each([=](int i) { return i < 8 ? low[i] : high[i - 8]; });
  }
  /// 8 times one number, 8 times another.
  static Lanes halves(float low, float high) {
    return each([=](int i) { return i < 8 ? low : high; });
  }
  static void prefetch(const std::byte*) {}

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
  static Lanes largest(const Lanes& a, const Lanes& b) {
    return each([&](int i) { return a.lane[i] > b.lane[i] ? a.lane[i] : b.lane[i]; });
  }
  static Lanes magnitude(const Lanes& x) {
    return each([&](int i) { return x.lane[i] < 0.0F ? -x.lane[i] : x.lane[i]; });
  }
  /// x < bound ? yes : no
  static Lanes select_less(const Lanes& x, float bound, const Lanes& yes, const Lanes& no) {
    return each([&](int i) { return x.lane[i] < bound ? yes.lane[i] : no.lane[i]; });
  }
  /// The first `count` lanes of x, then `fill`.
  static Lanes keep_first(const Lanes& x, std::int64_t count, float fill) {
    return each([&](int i) { return i < count ? x.lane[i] : fill; });
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
  [[nodiscard]] float largest() const {
    float result = lane[0];
    for (int i = 1; i < 16; ++i) result = lane[i] > result ? lane[i] : result;
    return result;
  }
  /// Lane j of row i becomes lane i of row j.
  static void transpose(Lanes (&rows)[16]) {
    for (int i = 0; i < 16; ++i) {
      for (int j = 0; j < i; ++j) {
        const float other = rows[i].lane[j];
        rows[i].lane[j] = rows[j].lane[i];
        rows[j].lane[i] = other;
      }
    }
  }
  /// The sum of all lanes, in the same order on every instruction set.
  [[nodiscard]] float sum() const {
    float s[8];
    for (int i = 0; i < 8; ++i) s[i] = lane[i] + lane[i + 8];
    for (int i = 0; i < 4; ++i) s[i] += s[i + 4];
    return (s[0] + s[2]) + (s[1] + s[3]);
  }
};

/// 64 bytes of nibbles.
struct NibbleChunk {
  static constexpr int kBytes = 64;
  static constexpr int kSteps = 8;
  /// Which nibble of the chunk step `step` finds for a lane (2 * byte, + 1 for the high one). A lane's nibbles lie in
  /// one byte, or in neighbours.
  static constexpr int nibble_at(int step, int lane) { return lane * 8 + step; }
  /// Step i of those that find low (0) or high (1) nibbles.
  static constexpr int step_of(int half, int i) { return 2 * i + half; }
  struct Table {
    const float* values;
    explicit Table(const float* sixteen) : values(sixteen) {}
  };
};

/// A chunk in pieces of kPiece bytes at distances of kStride.
template <int kPiece, int kStride>
struct NibblePieces : NibbleChunk {
  static constexpr int kOverread = 0;  ///< bytes that may be read beyond the chunk
  const std::byte* from;

  explicit NibblePieces(const std::byte* bytes) : from(bytes) {}
  /// table[nibble_at(kStep, lane)]
  template <int kStep>
  [[nodiscard]] Lanes step(const Table& table) const {
    return Lanes::each([&](int lane) {
      const int nibble = nibble_at(kStep, lane);
      const int byte = nibble / 2 / kPiece * kStride + nibble / 2 % kPiece;
      return table.values[static_cast<std::uint8_t>(from[byte]) >> (nibble % 2 * 4) & 15];
    });
  }
};

/// A chunk whose bytes lie together.
using NibbleRun = NibblePieces<64, 64>;

/// 64 E4M3 codes; step() gives the values of value_at(kStep, lane), which kFactor times are what the codes mean.
struct E4M3Chunk {
  static constexpr int kSteps = 4;
  static constexpr float kFactor = 1.0F;
  static constexpr int value_at(int step, int lane) { return step * 16 + lane; }
  const std::byte* from;

  explicit E4M3Chunk(const std::byte* bytes) : from(bytes) {}
  template <int kStep>
  [[nodiscard]] Lanes step() const {
    return Lanes::lookup256(&vernier::kDecodeTable<vernier::E4M3Codec>[0], Codes::load_bytes(from + kStep * 16));
  }
  /// Notices codes that mean NaN, where step() doesn't.
  struct NanWatch {
    void see(const std::byte*) {}
    [[nodiscard]] static bool seen() { return false; }
  };
};

/// 32 bf16 values: the even ones, then the odd ones.
struct Bf16Pairs {
  const std::byte* from;
  explicit Bf16Pairs(const std::byte* bytes) : from(bytes) {}
  template <int kStep>
  [[nodiscard]] Lanes step() const {
    return Lanes::each([&](int i) {
      std::uint16_t code;
      std::memcpy(&code, from + 4 * i + 2 * kStep, 2);
      return __builtin_bit_cast(float, static_cast<std::uint32_t>(code) << 16);
    });
  }
};

}  // namespace
