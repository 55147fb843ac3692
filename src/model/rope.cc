#include "model/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

namespace vernier {
namespace {

using Frequencies = std::vector<double>;

void scale_llama3(const RopeConfig& rope, Frequencies& inverse) {
  const double low_wavelength = rope.original_context / rope.low_freq_factor;
  const double high_wavelength = rope.original_context / rope.high_freq_factor;
  for (double& frequency : inverse) {
    const double wavelength = 2.0 * std::numbers::pi / frequency;
    if (wavelength < high_wavelength) continue;
    if (wavelength > low_wavelength) {
      frequency /= rope.factor;
      continue;
    }
    const double smooth =
        (rope.original_context / wavelength - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor);
    frequency *= (1.0 - smooth) / rope.factor + smooth;
  }
}

void scale_yarn(const RopeConfig& rope, Frequencies& inverse) {
  const auto dims = static_cast<double>(rope.rotary_dims);
  const auto correction = [&](double rotations) {
    return dims * std::log(rope.original_context / (2.0 * std::numbers::pi * rotations)) / (2.0 * std::log(rope.theta));
  };
  double low = correction(rope.beta_fast);
  double high = correction(rope.beta_slow);
  if (rope.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, dims - 1.0);
  if (low == high) high += 0.001;
  for (std::size_t j = 0; j < inverse.size(); ++j) {
    const double ramp = std::clamp((static_cast<double>(j) - low) / (high - low), 0.0, 1.0);
    inverse[j] *= (1.0 - ramp) + ramp / rope.factor;
  }
}

/// Frequencies too small to turn anything in fp32 at any position (Gemma's 1e30 divisors) need no work.
void drop_still_pairs(Frequencies& inverse) {
  constexpr double kStill = 1e-20;
  while (inverse.size() > 1 && inverse.back() < kStill) inverse.pop_back();
}

}  // namespace

Result<RopeTable> build_rope(const RopeConfig& rope, std::int64_t head_dim, std::span<const float> divisors) {
  const bool proportional = rope.scaling == RopeConfig::Scaling::kProportional;
  // Proportional rope spaces its frequencies over the whole head and turns the first of them only.
  const std::int64_t spread = proportional ? head_dim : rope.rotary_dims;
  const std::int64_t pairs = divisors.empty() ? rope.rotary_dims / 2 : spread / 2;
  if (!divisors.empty() && static_cast<std::int64_t>(divisors.size()) != pairs) {
    return fail(ErrorCode::kCorrupt, "rope_freqs has {} values, expected {}", divisors.size(), pairs);
  }
  RopeTable table;
  table.pairing = rope.interleaved ? RopePairing::kInterleaved : RopePairing::kHalves;
  table.pair_offset = static_cast<std::int32_t>(spread / 2);
  for (std::int64_t j = 0; j < pairs; ++j) {
    const double exponent = -2.0 * static_cast<double>(j) / static_cast<double>(spread);
    table.inverse_frequencies.push_back(std::pow(rope.theta, exponent));
  }
  if (!divisors.empty()) {
    for (std::size_t j = 0; j < divisors.size(); ++j) {
      if (!(divisors[j] > 0.0F)) {
        return fail(ErrorCode::kCorrupt, "rope_freqs[{}] must be above 0, found {}", j, divisors[j]);
      }
      table.inverse_frequencies[j] /= static_cast<double>(divisors[j]);
    }
  }
  switch (rope.scaling) {
    case RopeConfig::Scaling::kNone: break;
    case RopeConfig::Scaling::kLlama3:
      if (divisors.empty()) scale_llama3(rope, table.inverse_frequencies);
      break;
    case RopeConfig::Scaling::kLinear:
    case RopeConfig::Scaling::kProportional:
      for (double& frequency : table.inverse_frequencies) frequency /= rope.factor;
      break;
    case RopeConfig::Scaling::kYarn:
      scale_yarn(rope, table.inverse_frequencies);
      table.magnitude = static_cast<float>(rope.attention_factor.value_or(0.1 * std::log(rope.factor) + 1.0));
      break;
  }
  drop_still_pairs(table.inverse_frequencies);
  return table;
}

}  // namespace vernier
