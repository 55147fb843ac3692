// Temperature, filters and the draw, from a row's likeliest logits in order.
//
// All sums are of integers (backend/odds.h), so the device that ranked the row changes no token. Each filter keeps the
// likeliest candidates (ties to the lower id), and the draw walks what is left in that order until it has passed a
// share `uniform` of its odds.
#pragma once

#include <cstdint>
#include <optional>

#include "backend/ranking.h"
#include "vernier/sampling.h"

namespace vernier {

/// Of a temperature above 0.
[[nodiscard]] inline double inverse_temperature(const SamplingParams& params) {
  return 1.0 / static_cast<double>(params.temperature);
}

/// The token for `uniform` in [0, 1), under the temperature, above 0, and filters of `params`. nullopt: the ranking
/// doesn't reach far enough, which a complete one always does. Its draw_odds are read if params.top_k is 0.
[[nodiscard]] std::optional<std::int32_t> draw(const SamplingParams& params, const Ranking& ranking, double uniform);

}  // namespace vernier
