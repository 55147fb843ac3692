// The gated activations of many numbers at once, for threads that have nothing else to overlap them with.
//
// A division is a branch to the compiler, and what is on one side of it does not overlap with what is on the other. So
// here the activations of gate.cuh are taken apart, with one division of all numbers between. Tests hold the results to
// those of the operation, to the bit.
#pragma once

#include "backend/cuda/experts/gate.cuh"

namespace vernier::cuda {

/// What an activation divides.
struct Quotient {
  float numerator;
  float denominator;
};
__device__ __forceinline__ Quotient begin_gated(const ActivationSpec& spec, float gate) {
  if (spec.kind == Activation::kSilu) return {gate, 1.0F + expf(-gate)};
  const float inner = spec.kind == Activation::kGeluTanh ? 1.5957691216057308F * gate * (1.0F + 0.044715F * gate * gate)
                                                         : spec.alpha * fminf(gate, spec.limit);
  return {1.0F, 1.0F + expf(-inner)};
}
__device__ __forceinline__ float end_gated(const ActivationSpec& spec, float gate, float up, float quotient) {
  if (spec.kind == Activation::kSilu) return quotient * up;
  if (spec.kind == Activation::kGeluTanh) return gate * quotient * up;
  return fminf(gate, spec.limit) * quotient * (fminf(fmaxf(up, -spec.limit), spec.limit) + 1.0F);
}

/// Whether a quotient takes no more than the steps of divide_ordinary().
__device__ __forceinline__ bool is_ordinary(const Quotient& of) {
  constexpr float kLeast = 0x1p-60F;
  constexpr float kMost = 0x1p60F;
  return fabsf(of.numerator) > kLeast && fabsf(of.numerator) < kMost && of.denominator > kLeast &&
         of.denominator < kMost;
}
/// The quotient of such numbers, rounded once: the compiler's own steps for them.
__device__ __forceinline__ float divide_ordinary(const Quotient& of) {
  float guess = 0.0F;
  asm("rcp.approx.ftz.f32 %0, %1;\n" : "=f"(guess) : "f"(of.denominator));
  const float reciprocal = __fmaf_rn(guess, __fmaf_rn(guess, -of.denominator, 1.0F), guess);
  const float first = __fmul_rn(of.numerator, reciprocal);
  return __fmaf_rn(reciprocal, __fmaf_rn(first, -of.denominator, of.numerator), first);
}

/// gated() of each, in place of `gate`.
template <int kCount>
__device__ __forceinline__ void gate_all(const ActivationSpec& spec, float (&gate)[kCount], const float (&up)[kCount]) {
  // The kind is asked once, not for each number.
  const auto with_kind = [&spec](const auto& body) __attribute__((always_inline)) {
    ActivationSpec known = spec;
    switch (spec.kind) {
      case Activation::kSilu: known.kind = Activation::kSilu; return body(known);
      case Activation::kGeluTanh: known.kind = Activation::kGeluTanh; return body(known);
      default: known.kind = Activation::kClampedSwiglu; return body(known);
    }
  };
  Quotient of[kCount];
  with_kind([&](const ActivationSpec& known) __attribute__((always_inline)) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) of[i] = begin_gated(known, gate[i]);
  });
  bool are_ordinary = true;
#pragma unroll
  for (int i = 0; i < kCount; ++i) are_ordinary = are_ordinary && is_ordinary(of[i]);
  float quotient[kCount];
#pragma unroll
  for (int i = 0; i < kCount; ++i) quotient[i] = divide_ordinary(of[i]);
  if (!are_ordinary) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) quotient[i] = of[i].numerator / of[i].denominator;
  }
  with_kind([&](const ActivationSpec& known) __attribute__((always_inline)) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) gate[i] = end_gated(known, gate[i], up[i], quotient[i]);
  });
}

}  // namespace vernier::cuda
