// Scores and weighted sums over cached keys and values. See kernels.h for the contract and this folder's rules.
#pragma once

#include "backend/cpu/isa/kernels.h"
#include "format/scalar_codecs.h"

namespace {

using vernier_isa::KvRun;
using vernier_isa::KvType;

template <KvType kType>
struct KvElements {
  static constexpr int kBytes = kType == KvType::kF32 ? 4 : kType == KvType::kBF16 ? 2 : 1;

  static Lanes load(const std::byte* from) {
    if constexpr (kType == KvType::kF32) {
      float values[16];
      __builtin_memcpy(values, from, sizeof(values));
      return Lanes::load(values);
    } else if constexpr (kType == KvType::kBF16) {
      return Lanes::load_bf16(from);
    } else {
      return Lanes::lookup256(&vernier::kDecodeTable<vernier::E4M3Codec>[0], Codes::load_bytes(from));
    }
  }
  /// The first `count` elements, then zeros.
  static Lanes load_first(const std::byte* from, std::int64_t count) {
    if (count >= 16) return load(from);
    std::byte padded[64] = {};
    for (std::int64_t i = 0; i < count * kBytes; ++i) padded[i] = from[i];
    return load(padded);
  }
};

template <KvType kType>
void score_run(const float* q, const KvRun& keys, float* scores) {
  using Elements = KvElements<kType>;
  const std::byte* key = keys.first;
  for (std::int64_t i = 0; i < keys.count; ++i, key += keys.stride_bytes) {
    Lanes sum = Lanes::all(0.0F);
    std::int64_t d = 0;
    for (; d + 16 <= keys.dim; d += 16) {
      sum = Lanes::fma(Lanes::load(q + d), Elements::load(key + d * Elements::kBytes), sum);
    }
    if (d < keys.dim) {
      const std::int64_t rest = keys.dim - d;
      sum = Lanes::fma(Lanes::load_first(q + d, rest), Elements::load_first(key + d * Elements::kBytes, rest), sum);
    }
    scores[i] = sum.sum();
  }
}

template <KvType kType>
void add_run(const float* weights, const KvRun& values, float keep, float* sum) {
  using Elements = KvElements<kType>;
  for (std::int64_t d = 0; d < values.dim; d += 16) {
    const std::int64_t count = values.dim - d < 16 ? values.dim - d : 16;
    const std::byte* value = values.first + d * Elements::kBytes;
    Lanes total = Lanes::load_first(sum + d, count) * Lanes::all(keep);
    for (std::int64_t i = 0; i < values.count; ++i, value += values.stride_bytes) {
      total = Lanes::fma(Lanes::all(weights[i]), Elements::load_first(value, count), total);
    }
    total.store_first(sum + d, count);
  }
}

void score_keys(const float* q, const KvRun& keys, float* scores) {
  switch (keys.type) {
    case KvType::kF32: return score_run<KvType::kF32>(q, keys, scores);
    case KvType::kBF16: return score_run<KvType::kBF16>(q, keys, scores);
    case KvType::kF8E4M3: return score_run<KvType::kF8E4M3>(q, keys, scores);
  }
}

void add_values(const float* weights, const KvRun& values, float keep, float* sum) {
  switch (values.type) {
    case KvType::kF32: return add_run<KvType::kF32>(weights, values, keep, sum);
    case KvType::kBF16: return add_run<KvType::kBF16>(weights, values, keep, sum);
    case KvType::kF8E4M3: return add_run<KvType::kF8E4M3>(weights, values, keep, sum);
  }
}

}  // namespace
