// The table through which kernels find the matrices of a bank of experts.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "backend/cuda/cuda_context.h"
#include "backend/cuda/fragment/weight_ref.h"

namespace vernier::cuda {

/// The matrices of all experts: gate, up, down, [experts] each.
struct BankView {
  const MatrixRef* device = nullptr;
  std::int64_t experts = 0;
  Packing gate_up = Packing::kNone;  ///< kNone also where not all are packed alike
  Packing down = Packing::kNone;
  [[nodiscard]] const MatrixRef* matrix(int which) const { return device + which * experts; }
};

/// The bank's table on the device. Placed banks are copied once; of experts that move it changes from step to step.
[[nodiscard]] Result<BankView> device_bank(const CudaContext& context, const ExpertWeights& experts);
/// Such a table on the host, and its view, `device` left null.
[[nodiscard]] Result<std::vector<MatrixRef>> bank_table(const ExpertWeights& experts);
[[nodiscard]] BankView view_bank(std::span<const MatrixRef> table);

/// expert_mlp() with the table of `bank`, which kernels in front may have written; of args.experts only sizes count.
[[nodiscard]] Status expert_mlp(CudaContext& context, const ExpertMlpArgs& args, const BankView& bank);

}  // namespace vernier::cuda
