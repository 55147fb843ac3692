// Loops that do nothing but what the hardware limits: reading memory, multiplying in registers. See kernels.h for the
// contract and this folder's rules.
#pragma once

#include "backend/cpu/isa/kernels.h"

namespace {

std::uint64_t fold_bytes(const std::byte* bytes, std::int64_t count) {
  std::uint64_t folded[32] = {};
  for (std::int64_t i = 0; i + 256 <= count; i += 256) {
    std::uint64_t words[32];
    __builtin_memcpy(words, bytes + i, sizeof(words));
    for (int j = 0; j < 32; ++j) folded[j] ^= words[j];
  }
  std::uint64_t all = 0;
  for (const std::uint64_t word : folded) all ^= word;
  return all;
}

/// As many chains as hide the latency of a multiply-add, all in registers.
double spin_multiply_adds(std::int64_t rounds, float* sink) {
  Lanes sums[Lanes::kChains];
  for (int i = 0; i < Lanes::kChains; ++i) sums[i] = Lanes::all(sink[i]);  // different, lest they be computed once
  const Lanes a = Lanes::all(sink[0]);
  const Lanes b = Lanes::all(sink[1]);
  for (std::int64_t n = 0; n < rounds; ++n) {
    for (int i = 0; i < Lanes::kChains; ++i) sums[i] = Lanes::fma(a, b, sums[i]);
  }
  for (int i = 0; i < Lanes::kChains; ++i) sink[i] = sums[i].sum();
  return static_cast<double>(rounds) * Lanes::kChains * 32;
}

}  // namespace
