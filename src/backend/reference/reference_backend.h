// The oracle: every operation as its definition reads, in double, one number at a time. Slow on purpose; other backends
// are held against it. Threads share the rows of a weight and nothing else.
#pragma once

#include <vector>

#include "backend/host_backend.h"
#include "base/thread_pool.h"

namespace vernier {

class ReferenceBackend final : public HostBackend {
 public:
  explicit ReferenceBackend(const BackendOptions& options);

  [[nodiscard]] std::string_view name() const override { return "reference"; }
  [[nodiscard]] Precision precision() const override { return precision_; }

  [[nodiscard]] Status embed(const EmbedArgs& args) override;
  [[nodiscard]] Status rms_norm(const RmsNormArgs& args) override;
  [[nodiscard]] Status linear(const LinearArgs& args) override;
  [[nodiscard]] Status rope_and_store_kv(const RopeStoreArgs& args) override;
  [[nodiscard]] Status attention(const AttentionArgs& args) override;
  [[nodiscard]] Status gated_activation(const GatedActivationArgs& args) override;
  [[nodiscard]] Status route_experts(const RouteArgs& args) override;
  [[nodiscard]] Status expert_mlp(const ExpertMlpArgs& args) override;
  [[nodiscard]] Status combine(const CombineArgs& args) override;
  [[nodiscard]] Status rank_logits(const RankArgs& args) override;

 private:
  Precision precision_;
  ThreadPool pool_;
};

[[nodiscard]] BackendEntry reference_backend_entry();

}  // namespace vernier
