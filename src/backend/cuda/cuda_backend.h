// One NVIDIA GPU as a Backend. This class checks arguments, keeps stream and working memory, and passes each operation
// on to its kernels: ops/ (norms, attention, ...), linear/ and experts/ (everything that multiplies weights).
#pragma once

#include <memory>

#include "backend/backend.h"
#include "backend/copy_memory.h"
#include "backend/cuda/cuda_context.h"
#include "backend/cuda/host_detours.h"
#include "backend/cuda/record_placements.h"
#include "backend/cuda/step_graphs.h"
#include "backend/expert_slots.h"
#include "backend/step_counter.h"

namespace vernier::cuda {

class CudaBackend final : public Backend,
                          public DetourDevice,
                          public RecordPlacer,
                          public ExpertSlotDevice,
                          public StepCounter {
 public:
  /// Takes GPU `device` of those that CUDA_VISIBLE_DEVICES leaves. kDevice with the reason where it can't be used.
  [[nodiscard]] static Result<std::unique_ptr<CudaBackend>> create(int device, const BackendOptions& options);
  ~CudaBackend() override;

  [[nodiscard]] std::string_view name() const override { return "cuda"; }
  [[nodiscard]] Precision precision() const override { return context_.precision; }
  [[nodiscard]] MemoryInfo memory() const override;
  [[nodiscard]] std::int32_t suitable_batch_tokens() const override { return 2048; }
  /// Unknown where a GiB for reading isn't free.
  [[nodiscard]] Result<Ceilings> measure_ceilings(BenchClock clock) override;
  [[nodiscard]] Status supports(FormatId format) const override;

  [[nodiscard]] Result<Buffer> allocate(std::size_t size_bytes) override;
  [[nodiscard]] Result<Weight> place(const Weight& host) override;
  /// Both copies wait for everything that is enqueued, and are complete when they return.
  [[nodiscard]] Status copy_to_device(void* device, const void* host, std::size_t size_bytes) override;
  [[nodiscard]] Status copy_to_host(void* host, const void* device, std::size_t size_bytes) override;
  [[nodiscard]] Status synchronize() override;
  [[nodiscard]] std::vector<std::string> warnings() const override;
  [[nodiscard]] Status run_step(const RepeatableStep& step, const std::function<Status()>& work) override;
  [[nodiscard]] std::int64_t launches_of_step() const override { return graphs_.last_launches(); }
  /// Page-locked where the system grants it, else ordinary memory, with which copies are slower and run beside nothing.
  [[nodiscard]] Result<Buffer> allocate_host(std::size_t size_bytes) override;
  [[nodiscard]] std::uint64_t record_bytes(const Weight& host) const override;
  [[nodiscard]] Result<Weight> pack(const Weight& host, std::byte* record) override;
  [[nodiscard]] Result<std::unique_ptr<CopyLane>> create_copy_lane() override;
  [[nodiscard]] Status take_detour(const HostDetour& detour) override;
  [[nodiscard]] Result<Buffer> lock(std::span<const std::byte> bytes) override;
  [[nodiscard]] Result<std::byte*> stage(std::int32_t parcel, std::size_t size_bytes) override;
  [[nodiscard]] Status send(std::int32_t parcel, std::span<const Run> runs) override;
  [[nodiscard]] Status place(std::int32_t parcel, std::span<const Part> parts) override;
  [[nodiscard]] Result<std::vector<Weight>> finish() override;
  [[nodiscard]] double bytes_per_second() override { return placements_.bytes_per_second(); }
  [[nodiscard]] Result<std::unique_ptr<ExpertSlots>> create_expert_slots(const ExpertSlotsSetup& setup) override;

  [[nodiscard]] Status embed(const EmbedArgs& args) override;
  [[nodiscard]] Status rms_norm(const RmsNormArgs& args) override;
  [[nodiscard]] Status linear(const LinearArgs& args) override;
  [[nodiscard]] Status rope_and_store_kv(const RopeStoreArgs& args) override;
  [[nodiscard]] Status attention(const AttentionArgs& args) override;
  [[nodiscard]] Status gated_activation(const GatedActivationArgs& args) override;
  [[nodiscard]] Status gated_mlp(const GatedMlpArgs& args) override;
  [[nodiscard]] Status route_experts(const RouteArgs& args) override;
  [[nodiscard]] Status expert_mlp(const ExpertMlpArgs& args) override;
  [[nodiscard]] Status combine(const CombineArgs& args) override;
  [[nodiscard]] Status soft_cap(const SoftCapArgs& args) override;
  [[nodiscard]] Status sigmoid_gate(const SigmoidGateArgs& args) override;
  [[nodiscard]] Status gated_delta_net(const GatedDeltaNetArgs& args) override;
  [[nodiscard]] Status rank_logits(const RankArgs& args) override;

 private:
  CudaBackend(int device, cudaStream_t stream, Precision precision);
  /// The calling thread may have another device current.
  [[nodiscard]] Status enter() const;
  [[nodiscard]] Status copy(void* to, const void* from, std::size_t size_bytes, cudaMemcpyKind kind);

  CopyMemory copy_memory_;
  DeviceScratch scratch_;
  UploadRing uploads_;
  StepTables tables_;
  CudaContext context_;
  HostDetours detours_;
  RecordPlacements placements_;
  StepGraphs graphs_;
  bool use_graphs_ = true;
  Buffer read_memory_;  ///< what measure_ceilings() reads
};

}  // namespace vernier::cuda
