// Kernels for CPUs with AVX-512 BF16 besides what avx512.cc needs.
// The format headers are compiled under another name here, so that no inline function of this unit can stand in for one
// that the rest of the program runs on any CPU.
#define vernier vernier_avx512bf16  // NOLINT(readability-identifier-naming)

#include "backend/cpu/isa/lanes_avx512.h"
// The lanes come first: the kernels are written over them.
#include "backend/cpu/isa/kernels_impl.h"

namespace {

double spin_pair_products(std::int64_t rounds, float* sink) {
  constexpr int kChains = Lanes::kChains;
  __m512 sums[kChains];
  for (int i = 0; i < kChains; ++i) sums[i] = _mm512_set1_ps(sink[i]);
  const __m512bh a = _mm512_cvtne2ps_pbh(sums[0], sums[0]);
  const __m512bh b = _mm512_cvtne2ps_pbh(sums[1], sums[1]);
  for (std::int64_t n = 0; n < rounds; ++n) {
    for (int i = 0; i < kChains; ++i) sums[i] = _mm512_dpbf16_ps(sums[i], a, b);
  }
  for (int i = 0; i < kChains; ++i) sink[i] = Lanes{sums[i]}.sum();
  return static_cast<double>(rounds) * kChains * 64;
}

constexpr vernier_isa::Kernels with_pair_products(vernier_isa::Kernels kernels) {
  kernels.name = "avx512bf16";
  kernels.spin_multiply_adds = spin_pair_products;
  return kernels;
}

constexpr vernier_isa::Kernels kPairKernels = with_pair_products(kKernels);

}  // namespace

namespace vernier_isa {

const Kernels& avx512bf16_kernels() { return kPairKernels; }

}  // namespace vernier_isa
