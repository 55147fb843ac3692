// Where experts live and who computes them: `--experts`. Without a GPU there is one choice, the backend itself.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "backend/expert_executor.h"

namespace vernier {

struct ExpertPlacement {
  std::string mode;  ///< what was chosen: "cpu", ...
  std::unique_ptr<ExpertExecutor> executor;
};

/// Chooses an executor for `mode` (auto, fused, offload, hybrid, cpu) on `backend`, which must outlive it. Modes that
/// need a GPU are kDevice on other backends; unknown modes are kInvalidArgument and list the known ones.
[[nodiscard]] Result<ExpertPlacement> place_experts(std::string_view mode, Backend& backend);

}  // namespace vernier
