// What backends that compute on the host share: their memory is the host's, weights stay where the file is mapped, and
// operations complete before they return.
#pragma once

#include "backend/backend.h"

namespace vernier {

class HostBackend : public Backend {
 public:
  [[nodiscard]] bool is_host() const override { return true; }
  [[nodiscard]] MemoryInfo memory() const override;
  [[nodiscard]] Status supports(FormatId format) const override;
  [[nodiscard]] Result<Buffer> allocate(std::size_t size_bytes) override;
  [[nodiscard]] Result<Weight> place(const Weight& host) override;
  [[nodiscard]] Status copy_to_device(void* device, const void* host, std::size_t size_bytes) override;
  [[nodiscard]] Status copy_to_host(void* host, const void* device, std::size_t size_bytes) override;
  [[nodiscard]] Status synchronize() override;

  // Scalar (but rank_logits), in double where it matters; a backend with something faster overrides them.
  [[nodiscard]] Status soft_cap(const SoftCapArgs& args) override;
  [[nodiscard]] Status sigmoid_gate(const SigmoidGateArgs& args) override;
  [[nodiscard]] Status gated_delta_net(const GatedDeltaNetArgs& args) override;
  [[nodiscard]] Status rank_logits(const RankArgs& args) override;  // rank.cc
};

}  // namespace vernier
