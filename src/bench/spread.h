// Median, least and greatest of a few measurements.
#pragma once

#include <vector>

namespace vernier::bench {

struct Spread {
  double median = 0.0;
  double min = 0.0;
  double max = 0.0;
};

/// Zeros for no values.
[[nodiscard]] Spread spread_of(std::vector<double> values);

}  // namespace vernier::bench
