// A small fixed generator: synthetic weights are the same on every machine and with every number of threads.
#pragma once

#include <cstdint>

namespace vernier::bench {

/// One step of splitmix64: a well-mixed function of `value`.
[[nodiscard]] constexpr std::uint64_t mix(std::uint64_t value) {
  value += 0x9E3779B97F4A7C15U;
  value = (value ^ (value >> 30U)) * 0xBF58476D1CE4E5B9U;
  value = (value ^ (value >> 27U)) * 0x94D049BB133111EBU;
  return value ^ (value >> 31U);
}

class Random {
 public:
  explicit constexpr Random(std::uint64_t seed) : state_(mix(seed)) {}
  constexpr std::uint64_t next() { return mix(state_++); }
  /// In [0, n).
  constexpr std::uint64_t below(std::uint64_t n) { return next() % n; }
  /// In [-1, 1).
  constexpr float uniform() {
    return static_cast<float>(static_cast<std::int32_t>(next() >> 40U) - (1 << 23)) * 0x1p-23F;
  }
  /// Bell-shaped: mean 0, variance 1, less than 3 in magnitude (three uniform numbers of variance 1/3).
  constexpr float normal() { return uniform() + uniform() + uniform(); }

 private:
  std::uint64_t state_;
};

}  // namespace vernier::bench
