// What a device launched as one step. A side of some backends, as RecordPlacer is: ask with dynamic_cast.
#pragma once

#include <cstdint>

#include "backend/backend.h"

namespace vernier {

class StepCounter {
 public:
  virtual ~StepCounter() = default;
  StepCounter() = default;
  StepCounter(const StepCounter&) = delete;
  StepCounter& operator=(const StepCounter&) = delete;

  /// Kernels and copies that the last Backend::run_step() launched as a whole; 0 where it called operations one by one.
  [[nodiscard]] virtual std::int64_t launches_of_step() const = 0;
};

/// The same of any backend; 0 for those that don't count.
[[nodiscard]] inline std::int64_t launches_of_step(const Backend& backend) {
  const auto* const counter = dynamic_cast<const StepCounter*>(&backend);
  return counter == nullptr ? 0 : counter->launches_of_step();
}

}  // namespace vernier
