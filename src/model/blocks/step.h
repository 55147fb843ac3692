// What every block needs to run its part of a step.
#pragma once

#include <cstdint>

#include "model/model.h"
#include "model/workspace.h"

namespace vernier {

struct Step {
  Backend& backend;
  ExpertExecutor& experts;
  const Workspace& workspace;
  const StepBatch& batch;

  [[nodiscard]] std::int64_t num_tokens() const { return static_cast<std::int64_t>(batch.tokens.size()); }
  /// A [tokens, cols] matrix of the workspace.
  [[nodiscard]] MatrixView view(Slot slot, std::int64_t cols) const { return workspace.view(slot, num_tokens(), cols); }
};

/// What a block reads: x, or its norm.
struct BlockInput {
  MatrixView x;  ///< [tokens, hidden]
  InputNorm norm = {};
};

/// Where a block's result goes.
struct BlockOutput {
  MatrixView y;             ///< [tokens, hidden]
  bool accumulate = false;  ///< add to y, as blocks do that end in the residual stream
};

}  // namespace vernier
