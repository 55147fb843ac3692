// Every operation on the machine's own cores: inner loops from isa/, chosen once for the CPU at hand, shared among the
// threads of a pool by rows, tokens or heads. No result depends on how the work was shared.
#pragma once

#include "backend/cpu/cpu_isa.h"
#include "backend/cpu/rotation_tables.h"
#include "backend/cpu/row_products.h"
#include "backend/cpu/scratch.h"
#include "backend/host_backend.h"
#include "base/thread_pool.h"

namespace vernier {

class CpuBackend final : public HostBackend {
 public:
  /// The instruction set options.cpu_isa, or the best.
  [[nodiscard]] static Result<std::unique_ptr<Backend>> create(const BackendOptions& options);
  CpuBackend(const BackendOptions& options, const vernier_isa::Kernels& kernels);

  [[nodiscard]] std::string_view name() const override { return "cpu"; }
  [[nodiscard]] Precision precision() const override { return precision_; }
  [[nodiscard]] Result<Ceilings> measure_ceilings(BenchClock clock) override;  // ceilings.cc

  [[nodiscard]] Status embed(const EmbedArgs& args) override;
  [[nodiscard]] Status rms_norm(const RmsNormArgs& args) override;
  [[nodiscard]] Status linear(const LinearArgs& args) override;
  [[nodiscard]] Status rope_and_store_kv(const RopeStoreArgs& args) override;
  [[nodiscard]] Status attention(const AttentionArgs& args) override;
  [[nodiscard]] Status gated_activation(const GatedActivationArgs& args) override;
  [[nodiscard]] Status route_experts(const RouteArgs& args) override;
  [[nodiscard]] Status expert_mlp(const ExpertMlpArgs& args) override;
  [[nodiscard]] Status combine(const CombineArgs& args) override;
  [[nodiscard]] Status soft_cap(const SoftCapArgs& args) override;
  [[nodiscard]] Status sigmoid_gate(const SigmoidGateArgs& args) override;
  [[nodiscard]] Status gated_delta_net(const GatedDeltaNetArgs& args) override;
  [[nodiscard]] Status rank_logits(const RankArgs& args) override;

 private:
  /// Cosines and sines of all tokens of the slices, in the order of rope_and_store_kv.
  [[nodiscard]] Result<const float*> rotations(const RopeStoreArgs& args);
  [[nodiscard]] Status expert_mlp_chunk(const ExpertMlpArgs& args);
  /// kInternal when a weight has a layout that its format doesn't have.
  [[nodiscard]] Status check_decodable(const Weight& weight) const;

  const vernier_isa::Kernels& kernels_;
  Precision precision_;
  ThreadPool pool_;
  Buffer read_memory_;                  ///< what measure_ceilings() reads
  PreparedInputs inputs_;               ///< of linears
  std::vector<const Weight*> weights_;  ///< that the inputs will meet
  RotationTables rotation_tables_;
  Scratch<float> convolved_;        ///< of gated_delta_net
  Scratch<const float*> pointers_;  ///< likewise: rows of inputs
  Scratch<float> worker_floats_;    ///< a part for each worker
  Scratch<float> expert_floats_;    ///< between the products of expert_mlp
  Scratch<const float*> expert_pointers_;
};

[[nodiscard]] BackendEntry cpu_backend_entry();

}  // namespace vernier
