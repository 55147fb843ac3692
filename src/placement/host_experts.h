// `--experts cpu` beside a GPU: the experts stay in host memory and the CPU backend computes them, in the same
// arithmetic; activations travel. Where steps are large the experts may stream through a few slots of the device
// instead.
#pragma once

#include "backend/expert_executor.h"
#include "placement/offload_experts.h"
#include "placement/prompt_lanes.h"

namespace vernier {

class HostExpertExecutor final : public ExpertExecutor {
 public:
  /// `device` runs the rest of the model and outlives the executor; `host` computes the experts. `streamer`, whose home
  /// is `host` too, may be null.
  HostExpertExecutor(Backend& device, std::shared_ptr<Backend> host,
                     std::unique_ptr<OffloadExpertExecutor> streamer = nullptr)
      : device_(device), host_(std::move(host)), streamer_(std::move(streamer)) {}

  [[nodiscard]] Backend& home() override { return *host_; }
  [[nodiscard]] Status add_bank(std::int32_t layer, std::int32_t top_k, const ExpertWeights& bank) override;
  /// Goes without the streamer where the device has no room for its slots.
  [[nodiscard]] Status prepare() override;
  /// Detours belong to operations, and a step that streams can't be captured.
  [[nodiscard]] bool is_repeatable() const override { return true; }
  [[nodiscard]] Status run(std::int32_t layer, const ExpertMlpArgs& args) override;
  [[nodiscard]] ExpertMoves moves() override { return streamer_ != nullptr ? streamer_->moves() : ExpertMoves(); }

 private:
  [[nodiscard]] Status run_on_host(const ExpertMlpArgs& args);

  Backend& device_;
  std::shared_ptr<Backend> host_;
  std::unique_ptr<OffloadExpertExecutor> streamer_;
  PromptLanes lanes_;
};

}  // namespace vernier
