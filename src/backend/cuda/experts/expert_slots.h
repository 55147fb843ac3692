// Experts in slots of GPU memory that a step's own kernels fill: no host, so a decode step can be one graph.
#pragma once

#include <memory>
#include <vector>

#include "backend/cuda/cuda_context.h"
#include "backend/cuda/experts/expert_bank.h"
#include "backend/cuda/experts/slot_kernels.h"
#include "backend/expert_slots.h"

namespace vernier::cuda {

class CudaExpertSlots final : public ExpertSlots {
 public:
  /// Null where a record isn't in page-locked memory, or the books have no room.
  [[nodiscard]] static Result<std::unique_ptr<ExpertSlots>> create(CudaContext& context, const ExpertSlotsSetup& setup);

  [[nodiscard]] Status expert_mlp(std::int32_t layer, const ExpertMlpArgs& args) override;
  [[nodiscard]] void* turn() const override;
  [[nodiscard]] Result<std::vector<SlotExpert>> residents() override;
  [[nodiscard]] Status record_uses(std::span<const SlotExpert> uses) override;
  [[nodiscard]] Result<Counters> counters() override;

 private:
  struct Layer {
    std::int32_t first_key = 0;
    BankView bank;
  };

  explicit CudaExpertSlots(CudaContext& context) : context_(context) {}
  [[nodiscard]] Status prepare(const ExpertSlotsSetup& setup);
  [[nodiscard]] Status upload_experts(const ExpertSlotsSetup& setup);
  [[nodiscard]] Status upload_books();
  [[nodiscard]] Status read(void* to, const void* from, std::size_t size_bytes) const;
  [[nodiscard]] Status write(void* to, const void* from, std::size_t size_bytes) const;

  CudaContext& context_;
  std::vector<Layer> layers_;
  std::int32_t num_keys_ = 0;
  std::int32_t most_experts_ = 0;
  SlotTables tables_;
  Buffer experts_;  ///< records, home and current
  Buffer books_;    ///< the rest of the tables
};

}  // namespace vernier::cuda
