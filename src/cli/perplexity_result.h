// What `perplexity` found, and its two forms of output.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/json.h"
#include "cli/logit_stats.h"
#include "vernier/engine.h"

namespace vernier::cli {

/// The windows of a text, and what was found in those that are done.
struct Scores {
  std::vector<std::vector<std::int32_t>> windows;
  std::size_t first = 0;    ///< the row of a window that predicts its first scored token
  std::size_t done = 0;     ///< windows
  std::vector<double> nll;  ///< of each scored token
  // Against a base:
  std::vector<double> base_nll;
  std::vector<double> kl;
  std::size_t same_top = 0;
};

/// "x +/- y" of a mean negative log-probability.
[[nodiscard]] std::string perplexity_text(const Estimate& nll);

/// For people. `base`: what the base's file says of its model; null without one. Some window must be done.
void print_result(const Scores& scores, const std::string* base);
[[nodiscard]] Json result_json(const Scores& scores, const ModelInfo& info, const std::string* base);

}  // namespace vernier::cli
