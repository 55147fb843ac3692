// Products of packed weights with many tokens, as host code launches them.
#pragma once

#include "backend/cuda/linear/product.h"

namespace vernier::cuda {

/// Shared memory that a block of these kernels wants; devices with less do without them.
[[nodiscard]] std::size_t wide_shared_bytes(Packing packing);
/// Whether a packing's kernels also come with blocks of few columns, for fewer tokens.
constexpr int kSmallBlockColumns = 32;
[[nodiscard]] constexpr bool has_small_blocks(Packing packing) { return packing > Packing::kBF16; }
/// Whether a packing has them.
[[nodiscard]] constexpr bool has_wide(Packing packing) { return packing != Packing::kNone; }

/// The input must be rounded (InputView::rounded).
[[nodiscard]] cudaError_t wide_linear(Packing packing, const LinearBatch& batch, cudaStream_t stream);
[[nodiscard]] cudaError_t wide_experts(Packing packing, const ExpertBatch& batch, cudaStream_t stream);

}  // namespace vernier::cuda
