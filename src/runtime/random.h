// Counter-based random numbers: Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011).
// The number for (seed, position) needs no state, so a draw doesn't depend on batching, device or restarts.
#pragma once

#include <array>
#include <cstdint>

namespace vernier {

/// One Philox4x32-10 block.
[[nodiscard]] constexpr std::array<std::uint32_t, 4> philox4x32(std::array<std::uint32_t, 4> counter,
                                                                std::array<std::uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t a = std::uint64_t{0xD2511F53U} * counter[0];
    const std::uint64_t b = std::uint64_t{0xCD9E8D57U} * counter[2];
    counter = {static_cast<std::uint32_t>(b >> 32U) ^ counter[1] ^ key[0], static_cast<std::uint32_t>(b),
               static_cast<std::uint32_t>(a >> 32U) ^ counter[3] ^ key[1], static_cast<std::uint32_t>(a)};
    key[0] += 0x9E3779B9U;
    key[1] += 0xBB67AE85U;
  }
  return counter;
}

/// Uniform in [0, 1), a multiple of 2^-53, for the token at `position` of a sequence.
[[nodiscard]] constexpr double uniform_at(std::uint64_t seed, std::uint64_t position) {
  const auto block =
      philox4x32({static_cast<std::uint32_t>(position), static_cast<std::uint32_t>(position >> 32U), 0, 0},
                 {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32U)});
  const std::uint64_t bits = (std::uint64_t{block[0]} << 32U) | block[1];
  return static_cast<double>(bits >> 11U) * 0x1.0p-53;
}

}  // namespace vernier
