// Products of packed weights with many tokens on Hopper's asynchronous tensor cores, as host code launches them.
#pragma once

#include "backend/cuda/cuda_context.h"
#include "backend/cuda/linear/product.h"
#include "backend/cuda/linear/tiled_input.h"

namespace vernier::cuda {

/// Whether these kernels run on the device, are part of this build (which must be for sm_90a) and know the packing.
[[nodiscard]] bool has_async(const CudaContext& context, Packing packing);

/// A linear of such weights; rounds and tiles the input.
[[nodiscard]] Status multiply_async(CudaContext& context, const LinearBatch& batch);

/// What the products of a step's experts share.
struct AsyncExperts {
  ExpertBatch batch;
  TokenTiles tiles;
  TiledInput x;
};
/// One matrix (batch.matrix[0]) of each used expert.
[[nodiscard]] cudaError_t async_experts(const CudaContext& context, Packing packing, const AsyncExperts& experts);
/// act(gate, up), matrices 0 and 1 of the batch, into `hidden`, tiled like x.
[[nodiscard]] cudaError_t async_gate_up(const CudaContext& context, Packing packing, const AsyncExperts& experts,
                                        const ActivationSpec& spec, const TiledInput& hidden);

}  // namespace vernier::cuda
