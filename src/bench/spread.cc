#include "bench/spread.h"

#include <algorithm>

namespace vernier::bench {

Spread spread_of(std::vector<double> values) {
  if (values.empty()) return {};
  std::sort(values.begin(), values.end());
  const std::size_t middle = values.size() / 2;
  const double median = values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2.0;
  return {median, values.front(), values.back()};
}

}  // namespace vernier::bench
