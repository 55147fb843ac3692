// Who computes the experts of a layer. A model calls this interface only; where experts live and which device runs them
// is decided by placement/.
#pragma once

#include "backend/backend.h"

namespace vernier {

class ExpertExecutor {
 public:
  virtual ~ExpertExecutor() = default;
  ExpertExecutor() = default;
  ExpertExecutor(const ExpertExecutor&) = delete;
  ExpertExecutor& operator=(const ExpertExecutor&) = delete;

  /// Adds the experts' output to args.y; the contract is ExpertMlpArgs'. `layer` identifies the bank for caches.
  [[nodiscard]] virtual Status run(std::int32_t layer, const ExpertMlpArgs& args) = 0;
};

}  // namespace vernier
