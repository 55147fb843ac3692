#include "placement/experts.h"

#include <algorithm>
#include <array>

namespace vernier {
namespace {

/// All experts in the backend's own memory, computed by its own kernels.
class LocalExpertExecutor final : public ExpertExecutor {
 public:
  explicit LocalExpertExecutor(Backend& backend) : backend_(backend) {}
  Status run(std::int32_t /*layer*/, const ExpertMlpArgs& args) override { return backend_.expert_mlp(args); }

 private:
  Backend& backend_;
};

constexpr std::array<std::string_view, 5> kModes = {"auto", "fused", "offload", "hybrid", "cpu"};

}  // namespace

Result<ExpertPlacement> place_experts(std::string_view mode, Backend& backend) {
  if (std::find(kModes.begin(), kModes.end(), mode) == kModes.end()) {
    return fail(ErrorCode::kInvalidArgument, "unknown --experts '{}'; known: auto, fused, offload, hybrid, cpu",
                escape(mode));
  }
  if (mode != "auto" && mode != "cpu") {
    return fail_with_hint(ErrorCode::kDevice, "use --experts auto or cpu",
                          "--experts {} needs a GPU; the device is '{}'", mode, backend.name());
  }
  return ExpertPlacement{"cpu", std::make_unique<LocalExpertExecutor>(backend)};
}

}  // namespace vernier
