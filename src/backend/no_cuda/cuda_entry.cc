// Stands in for backend/cuda in builds without it, so that users learn why `--device cuda` isn't there.
#include "backend/cuda_entry.h"

namespace vernier {
namespace {

constexpr std::string_view kReason = "Vernier was built without CUDA";

}  // namespace

BackendEntry cuda_backend_entry() {
  return {.name = "cuda",
          .summary = "NVIDIA GPUs",
          .unavailable = [] { return std::string(kReason); },
          .create = [](const BackendOptions&) -> Result<std::unique_ptr<Backend>> {
            return fail(ErrorCode::kDevice, "{}", kReason);
          },
          .has_index = true};
}

}  // namespace vernier
