// Linears with some tens of tokens on Hopper, as host code launches them: split_product.cuh.
#pragma once

#include "backend/cuda/cuda_context.h"
#include "backend/cuda/linear/product.h"

namespace vernier::cuda {

/// How a linear is cut: tiles of 32 * `blocks` tokens, whose columns `split` blocks share.
struct SplitPlan {
  int blocks = 0;  ///< 0: these kernels are not for it
  int split = 0;
  double cost = 0;  ///< estimated, microseconds
};
[[nodiscard]] SplitPlan plan_split(const CudaContext& context, const LinearBatch& batch);

/// A linear for which there is a plan; norms, rounds and tiles the input.
[[nodiscard]] Status multiply_split(CudaContext& context, const LinearBatch& batch, const SplitPlan& plan);

/// A dense MLP whose products have plans.
struct SplitMlp {
  LinearBatch gate_up;  ///< two matrices of one packing; their y are written
  SplitPlan gate_up_plan;
  ActivationSpec activation;
  LinearBatch down;  ///< one matrix; its input is act(gate, up)
  SplitPlan down_plan;
};
[[nodiscard]] Status multiply_split_mlp(CudaContext& context, const SplitMlp& mlp);

}  // namespace vernier::cuda
