// The tensor-core instruction and the splitting of fp32 numbers into bf16 terms that it multiplies exactly.
//
// m16n8k16: lane = 4 g + t holds of A rows g and g + 8, of B column g, of the sums rows g, g + 8 and columns 2t, 2t
// + 1. Any permutation of k is right as long as A and B agree on it.
#pragma once

#include <cstdint>

namespace vernier::cuda {

/// A's fragment: {row g, row g + 8, row g, row g + 8}; the first two hold the k of b[0], the others the k of b[1].
struct FragmentA {
  std::uint32_t word[4];
};
struct FragmentB {
  std::uint32_t word[2];
};

/// sums += a * b in fp32.
__device__ __forceinline__ void multiply_add(float (&sums)[4], const FragmentA& a, const FragmentB& b) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};\n"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(a.word[0]), "r"(a.word[1]), "r"(a.word[2]), "r"(a.word[3]), "r"(b.word[0]), "r"(b.word[1]));
}

/// The bf16 in the upper halves of two fp32 numbers as a pair, `low` in the low half.
__device__ __forceinline__ std::uint32_t pack_upper_halves(float low, float high) {
  return __byte_perm(__float_as_uint(low), __float_as_uint(high), 0x7632);
}

/// bf16 pair, each rounded to nearest even.
__device__ __forceinline__ std::uint32_t round_pair(float low, float high) {
  std::uint32_t pair = 0;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;\n" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}

/// The bf16 in the upper half of an fp32 number.
__device__ __forceinline__ std::uint16_t upper_half(float value) {
  return static_cast<std::uint16_t>(__float_as_uint(value) >> 16);
}

/// value = term[0] + term[1] + term[2], exactly, each a bf16 of value's sign (or zero). Infinity and NaN go into the
/// first term alone.
struct Bf16Terms {
  float term[3];
};
__device__ __forceinline__ Bf16Terms split_terms(float value) {
  const std::uint32_t bits = __float_as_uint(value);
  if ((bits & 0x7F800000) == 0x7F800000) {
    const bool is_nan = (bits & 0x007FFFFF) != 0;
    return {{__uint_as_float((bits & 0xFFFF0000) | (is_nan ? 0x00400000 : 0)), 0.0F, 0.0F}};
  }
  const float first = __uint_as_float(bits & 0xFFFF0000);
  const float rest = value - first;
  const float second = __uint_as_float(__float_as_uint(rest) & 0xFFFF0000);
  return {{first, second, rest - second}};
}

/// Two numbers as pairs of the bf16 whose sums they are, each term what is nearest to the rest. Not for infinity, NaN
/// and what rounds to infinity.
struct Bf16Pairs {
  std::uint32_t term[3];
};
__device__ __forceinline__ Bf16Pairs split_pair(float low, float high) {
  Bf16Pairs pairs;
#pragma unroll
  for (int i = 0; i < 3; ++i) {
    pairs.term[i] = round_pair(low, high);
    low = __fsub_rn(low, __uint_as_float(pairs.term[i] << 16));
    high = __fsub_rn(high, __uint_as_float(pairs.term[i] & 0xFFFF0000));
  }
  return pairs;
}
/// Whether a number is the sum of what split_pair() makes of it: not of numbers with bits below bf16's smallest.
__device__ __forceinline__ bool can_split(float value) {
  const Bf16Pairs pairs = split_pair(value, 0.0F);
  float rest = value;
#pragma unroll
  for (const std::uint32_t term : pairs.term) rest = __fsub_rn(rest, __uint_as_float(term << 16));
  return rest == 0.0F;
}

/// The sum of the products with the three terms of an fp32 input. Infinity and NaN come from the first alone: the
/// others would make infinity times zero of it.
__device__ __forceinline__ float add_terms(float first, float second, float third) {
  if ((__float_as_uint(first) & 0x7F800000) == 0x7F800000) return first;
  return __fadd_rn(__fadd_rn(third, second), first);
}

}  // namespace vernier::cuda
