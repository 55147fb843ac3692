// The operations of the CUDA backend that touch no weights. Contracts are backend.h's; arguments have been checked.
// All work is enqueued on the context's stream.
#pragma once

#include "backend/cuda/cuda_context.h"

namespace vernier::cuda {

[[nodiscard]] Status rms_norm(CudaContext& context, const RmsNormArgs& args);
[[nodiscard]] Status rope_and_store_kv(CudaContext& context, const RopeStoreArgs& args);
[[nodiscard]] Status attention(CudaContext& context, const AttentionArgs& args);
[[nodiscard]] Status gated_activation(CudaContext& context, const GatedActivationArgs& args);
[[nodiscard]] Status combine(CudaContext& context, const CombineArgs& args);
[[nodiscard]] Status soft_cap(CudaContext& context, const SoftCapArgs& args);
[[nodiscard]] Status sigmoid_gate(CudaContext& context, const SigmoidGateArgs& args);
[[nodiscard]] Status gated_delta_net(CudaContext& context, const GatedDeltaNetArgs& args);
[[nodiscard]] Status rank_logits(CudaContext& context, const RankArgs& args);

/// Parts into which the longest sequence's keys are cut. For decode steps the next power of two, so that neighbouring
/// steps run the same grids.
[[nodiscard]] std::int32_t attention_splits(std::span<const SequenceSlice> slices);

}  // namespace vernier::cuda
