// Products of packed weights with many tokens on Hopper's asynchronous tensor cores, as host code launches them.
#pragma once

#include "backend/cuda/cuda_context.h"
#include "backend/cuda/linear/product.h"
#include "backend/cuda/linear/tiled_input.h"

namespace vernier::cuda {

/// Whether these kernels run on the device, are part of this build (which must be for sm_90a) and know the packing.
[[nodiscard]] bool has_async(const CudaContext& context, Packing packing);
/// Whether linears have them: also of grouped weights, unless an input has three terms.
[[nodiscard]] bool has_async_linear(const CudaContext& context, Packing packing, int terms);

/// A linear of such weights; norms (but of grouped weights), rounds and tiles the input.
[[nodiscard]] Status multiply_async(CudaContext& context, const LinearBatch& batch);
/// The output of `down`, a batch of one matrix, over act(gate, up), the two matrices of `gate_up`, packed alike.
/// Nothing is written where gate_up's y are, and down's input is not looked at.
[[nodiscard]] Status multiply_async_gated(CudaContext& context, const LinearBatch& gate_up, const ActivationSpec& spec,
                                          const LinearBatch& down);

/// What the products of a step's experts share.
struct AsyncExperts {
  ExpertBatch batch;
  TokenTiles tiles;
  TiledInput x;
};
/// The matrices of each used expert: one, or of grouped weights (without gate_up) one or two.
[[nodiscard]] cudaError_t async_experts(const CudaContext& context, Packing packing, const AsyncExperts& experts);
/// act(gate, up), matrices 0 and 1 of the batch, into `hidden`, tiled like x.
[[nodiscard]] cudaError_t async_gate_up(const CudaContext& context, Packing packing, const AsyncExperts& experts,
                                        const ActivationSpec& spec, const TiledInput& hidden);

}  // namespace vernier::cuda
