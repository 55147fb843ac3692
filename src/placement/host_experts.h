// `--experts cpu` beside a GPU: the experts stay in host memory and the CPU backend computes them, in the same
// arithmetic; activations travel.
#pragma once

#include "backend/expert_executor.h"
#include "placement/detour_arrays.h"

namespace vernier {

class HostExpertExecutor final : public ExpertExecutor {
 public:
  /// `device` runs the rest of the model and outlives the executor; `host` computes the experts.
  HostExpertExecutor(Backend& device, std::unique_ptr<Backend> host) : device_(device), host_(std::move(host)) {}

  [[nodiscard]] Backend& home() override { return *host_; }
  [[nodiscard]] Status add_bank(std::int32_t, std::int32_t, const ExpertWeights&) override { return {}; }
  [[nodiscard]] Status prepare() override { return {}; }
  [[nodiscard]] Status run(std::int32_t layer, const ExpertMlpArgs& args) override;

 private:
  Backend& device_;
  std::unique_ptr<Backend> host_;
};

}  // namespace vernier
