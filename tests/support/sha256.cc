#include "support/sha256.h"

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>

namespace vernier::test {
namespace {

/// The first 32 bits of the fractional parts of the square and cube roots of the first primes, as the standard defines
/// its constants. long double has the digits for both.
struct Constants {
  std::array<std::uint32_t, 8> start{};
  std::array<std::uint32_t, 64> rounds{};
  Constants() {
    const auto fraction = [](long double root) {
      return static_cast<std::uint32_t>((root - std::floor(root)) * 4294967296.0L);
    };
    std::size_t count = 0;
    for (int n = 2; count < rounds.size(); ++n) {
      bool prime = true;
      for (int d = 2; d * d <= n; ++d) prime = prime && n % d != 0;
      if (!prime) continue;
      if (count < start.size()) start[count] = fraction(std::sqrt(static_cast<long double>(n)));
      rounds[count++] = fraction(std::cbrt(static_cast<long double>(n)));
    }
  }
};

void add_block(const Constants& constants, const unsigned char* block, std::array<std::uint32_t, 8>& state) {
  std::array<std::uint32_t, 64> w{};
  for (std::size_t i = 0; i < 16; ++i) {
    for (std::size_t b = 0; b < 4; ++b) w[i] = w[i] << 8U | block[4 * i + b];
  }
  for (std::size_t i = 16; i < 64; ++i) {
    const std::uint32_t a = std::rotr(w[i - 15], 7) ^ std::rotr(w[i - 15], 18) ^ w[i - 15] >> 3U;
    const std::uint32_t b = std::rotr(w[i - 2], 17) ^ std::rotr(w[i - 2], 19) ^ w[i - 2] >> 10U;
    w[i] = w[i - 16] + a + w[i - 7] + b;
  }
  std::array<std::uint32_t, 8> s = state;
  for (std::size_t i = 0; i < 64; ++i) {
    const std::uint32_t e = std::rotr(s[4], 6) ^ std::rotr(s[4], 11) ^ std::rotr(s[4], 25);
    const std::uint32_t first = s[7] + e + ((s[4] & s[5]) ^ (~s[4] & s[6])) + constants.rounds[i] + w[i];
    const std::uint32_t a = std::rotr(s[0], 2) ^ std::rotr(s[0], 13) ^ std::rotr(s[0], 22);
    const std::uint32_t second = a + ((s[0] & s[1]) ^ (s[0] & s[2]) ^ (s[1] & s[2]));
    s = {first + second, s[0], s[1], s[2], s[3] + first, s[4], s[5], s[6]};
  }
  for (std::size_t i = 0; i < 8; ++i) state[i] += s[i];
}

}  // namespace

std::string sha256(std::string_view bytes) {
  static const Constants constants;
  std::string padded(bytes);
  padded += '\x80';
  while (padded.size() % 64 != 56) padded += '\0';
  const std::uint64_t bits = std::uint64_t{bytes.size()} * 8;
  for (int shift = 56; shift >= 0; shift -= 8) padded += static_cast<char>(bits >> static_cast<unsigned>(shift));
  std::array<std::uint32_t, 8> state = constants.start;
  for (std::size_t at = 0; at < padded.size(); at += 64) {
    add_block(constants, reinterpret_cast<const unsigned char*>(padded.data()) + at, state);
  }
  std::string text;
  for (const std::uint32_t word : state) {
    for (int shift = 28; shift >= 0; shift -= 4) {
      text += "0123456789abcdef"[word >> static_cast<unsigned>(shift) & 15U];
    }
  }
  return text;
}

}  // namespace vernier::test
