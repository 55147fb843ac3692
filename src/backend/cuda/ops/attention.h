// The kernels behind ops/attention.cu, which chooses among them.
#pragma once

#include "backend/cuda/ops/attention_state.cuh"
#include "backend/cuda/ops/launch.h"

namespace vernier::cuda {

/// Any element type, head_dim up to 512: fp32 arithmetic, one query head a block.
[[nodiscard]] Status attend_scalar(CudaContext& context, const AttentionKernelArgs& args);
inline constexpr std::int32_t kMaxHeadDim = 512;

/// On tensor cores, the query heads of a KV head together. `longest` is the largest SequenceSlice::num_tokens.
[[nodiscard]] Status attend_mma(CudaContext& context, const AttentionKernelArgs& args, std::int32_t longest);
/// bf16 or fp8 caches with heads of 64, 128 or 256, where a block may have enough shared memory: 150 KiB for heads of
/// 256.
[[nodiscard]] bool can_attend_mma(const CudaContext& context, const KvLayer& kv);
/// Blocks that a multiprocessor holds.
[[nodiscard]] std::int32_t mma_blocks(const KvLayer& kv);
/// Query rows (heads of a KV head times tokens) of a block's tile where a slice has so many.
[[nodiscard]] std::int32_t mma_tile_rows(const CudaContext& context, const KvLayer& kv, std::int32_t queries);

/// The same to the bit with Hopper's instructions, for many tokens: kPrecision::kBf16, bf16 caches.
[[nodiscard]] Status attend_async(CudaContext& context, const AttentionKernelArgs& args, std::int32_t longest);
[[nodiscard]] bool can_attend_async(const CudaContext& context, const KvLayer& kv);
/// Query rows of a block's tile.
[[nodiscard]] std::int32_t async_tile_rows(const KvLayer& kv);

/// The same for bf16 or fp8 caches with wider heads.
[[nodiscard]] Status attend_wide_head(CudaContext& context, const AttentionKernelArgs& args, std::int32_t longest);
[[nodiscard]] bool can_attend_wide_head(const CudaContext& context, const KvLayer& kv);

}  // namespace vernier::cuda
