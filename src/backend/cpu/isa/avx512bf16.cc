// Kernels for CPUs with AVX-512 BF16 besides what avx512.cc needs: those of avx512.cc, and VDPBF16PS for many tokens.
//
// VDPBF16PS adds the product of the odd elements of its operands, then that of the even ones, each as a fused
// multiply-add rounded to nearest, with subnormals flushed. So where every number is bf16 and nothing gets near the
// subnormals it does what two fp32 multiply-adds do, to the bit. Whether it's faster depends on the CPU.
// The format headers are compiled under another name here, so that no inline function of this unit can stand in for one
// that the rest of the program runs on any CPU.
#define vernier vernier_avx512bf16  // NOLINT(readability-identifier-naming)

#include "backend/cpu/isa/kernels.h"
#include "backend/cpu/isa/lanes_avx512.h"

namespace {

using vernier_isa::GroupProducts;

constexpr int kRows = Lanes::kTileRows;
constexpr int kTokens = Lanes::kTileTokens;

/// VDPBF16PS from registers: as many chains as hide its latency.
double spin_pair_products(std::int64_t rounds, float* sink) {
  constexpr int kChains = 12;
  __m512 sums[kChains];
  for (int i = 0; i < kChains; ++i) sums[i] = _mm512_set1_ps(sink[i]);
  const __m512bh a = _mm512_cvtne2ps_pbh(sums[0], sums[0]);
  const __m512bh b = _mm512_cvtne2ps_pbh(sums[1], sums[1]);
  for (std::int64_t n = 0; n < rounds; ++n) {
    for (int i = 0; i < kChains; ++i) sums[i] = _mm512_dpbf16_ps(sums[i], a, b);
  }
  for (int i = 0; i < kChains; ++i) sink[i] = _mm512_cvtss_f32(sums[i]);
  return static_cast<double>(rounds) * kChains * 64;
}

/// Packs pairs of vectors of fp32 numbers, and remembers whether that was right.
struct PairPacker {
  __mmask16 unfit = 0;

  /// Zero, or a bf16 number of magnitude 2^-48 .. 2^48: products and their sums stay clear of the ends of the range.
  /// The last digit of a product is at least 2^-110, so no sum is a subnormal.
  void check(__m512i bits) {
    const __m512i magnitude = _mm512_and_si512(bits, _mm512_set1_epi32(0x7FFFFFFF));
    const __m512i above = _mm512_sub_epi32(magnitude, _mm512_set1_epi32((127 - 48) << 23));
    const __mmask16 out = _mm512_cmpge_epu32_mask(above, _mm512_set1_epi32(96 << 23));
    const __mmask16 longer = _mm512_test_epi32_mask(bits, _mm512_set1_epi32(0xFFFF));
    unfit = static_cast<__mmask16>(unfit | longer |
                                   _mm512_mask_test_epi32_mask(out, magnitude, _mm512_set1_epi32(0x7FFFFFFF)));
  }
  __m512i pack(const float* first, const float* second) {
    const __m512i a = _mm512_castps_si512(_mm512_loadu_ps(first));
    const __m512i b = _mm512_castps_si512(_mm512_loadu_ps(second));
    check(a);
    check(b);
    return _mm512_or_si512(_mm512_and_si512(a, _mm512_set1_epi32(-0x10000)), _mm512_srli_epi32(b, 16));
  }
};

/// Words of a packed row.
constexpr std::int64_t kPackedRow = vernier_isa::kPanelValues;

bool pack_inputs(const float* const* x, std::int64_t x_begin, std::int64_t count, std::int64_t tokens,
                 std::uint32_t* packed) {
  PairPacker packer;
  for (std::int64_t t = 0; t < tokens; ++t) {
    const float* from = x[t] + x_begin;
    std::uint32_t* to = packed + t * kPackedRow;
    for (std::int64_t i = 0; i + 32 <= count; i += 32, to += 16) {
      _mm512_storeu_si512(to, packer.pack(from + i, from + i + 16));
    }
    if (packer.unfit != 0) return false;
  }
  return true;
}

struct PackedPanel {
  alignas(64) std::uint32_t words[kRows][kPackedRow];
  const float* scales[kRows];  ///< of the first segment
  std::int64_t scale_step;     ///< from a segment's scales to the next one's

  /// False where it can't hold what the panel does.
  bool pack(const GroupProducts& args) {
    const std::int64_t values = args.steps * 16;
    scale_step = values + 16;
    PairPacker packer;
    for (std::int64_t r = 0; r < kRows; ++r) {
      const float* from = args.panel + (r < args.rows ? r : args.rows - 1) * args.panel_stride;
      scales[r] = from + values;
      std::uint32_t* to = words[r];
      for (std::int64_t s = 0; s < args.segments; ++s, from += scale_step) {
        for (std::int64_t i = 0; i < values; i += 32, to += 16) {
          _mm512_storeu_si512(to, packer.pack(from + i, from + i + 16));
        }
      }
    }
    return packer.unfit == 0;
  }
};

void add_pair_tile(const PackedPanel& panel, const GroupProducts& args, const std::uint32_t* const (&x)[kTokens],
                   float* totals) {
  std::int64_t at = 0;
  for (std::int64_t s = 0; s < args.segments; ++s) {
    __m512 sums[kRows][kTokens];
    for (auto& row : sums) {
      for (__m512& sum : row) sum = _mm512_setzero_ps();
    }
    for (std::int64_t step = 0; step < args.steps; step += 2, at += 16) {
      __m512bh inputs[kTokens];
      for (int t = 0; t < kTokens; ++t) inputs[t] = (__m512bh)_mm512_loadu_si512(x[t] + at);
      for (int r = 0; r < kRows; ++r) {
        const auto weights = (__m512bh)_mm512_load_si512(panel.words[r] + at);
        for (int t = 0; t < kTokens; ++t) sums[r][t] = _mm512_dpbf16_ps(sums[r][t], weights, inputs[t]);
      }
    }
    for (int r = 0; r < kRows; ++r) {
      const __m512 scale = _mm512_loadu_ps(panel.scales[r] + s * panel.scale_step);
      for (int t = 0; t < kTokens; ++t) {
        float* total = totals + (r * kTokens + t) * 16;
        _mm512_storeu_ps(total, _mm512_fmadd_ps(sums[r][t], scale, _mm512_loadu_ps(total)));
      }
    }
  }
}

bool multiply_group(const GroupProducts& args, const std::uint32_t* packed) {
  PackedPanel panel;
  if (!panel.pack(args)) return false;
  float* totals = args.totals;
  for (std::int64_t token = 0; token < args.tokens; token += kTokens, totals += kRows * kTokens * 16) {
    const std::uint32_t* x[kTokens];
    for (int t = 0; t < kTokens; ++t) {
      x[t] = packed + (token + t < args.tokens ? token + t : args.tokens - 1) * kPackedRow;
    }
    add_pair_tile(panel, args, x, totals);
  }
  return true;
}

constexpr vernier_isa::PairKernels kPairs = {.pack_inputs = pack_inputs, .multiply_group = multiply_group};

vernier_isa::Kernels make_kernels() {
  vernier_isa::Kernels kernels = vernier_isa::avx512_kernels();
  kernels.name = "avx512bf16";
  kernels.pairs = &kPairs;
  kernels.spin_multiply_adds = spin_pair_products;
  return kernels;
}

}  // namespace

namespace vernier_isa {

const Kernels& avx512bf16_kernels() {
  static const Kernels kTable = make_kernels();
  return kTable;
}

}  // namespace vernier_isa
