// Products of at most 16 columns of input on Hopper, as host code launches them: weights come through rings in shared
// memory that bulk copies fill. (Elsewhere, and of weights that this leaves out: narrow_kernels.h.)
#pragma once

#include "backend/cuda/cuda_context.h"
#include "backend/cuda/linear/product.h"

namespace vernier::cuda {

/// Numbers from one row to the next where a chunk's columns of all rows lie together: what lanes read of eight rows
/// then meets no bank conflicts.
constexpr int kRingStride = kChunkCols + 8;
/// Numbers of `rows` rows as chunks.
[[nodiscard]] constexpr std::int64_t size_of_chunks(std::int64_t rows, std::int64_t cols) {
  return (cols + kChunkCols - 1) / kChunkCols * rows * kRingStride;
}

/// Where gate and up leave act(gate, up): rows as GatedOutput has them, or chunks.
struct RingOutput {
  GatedOutput gated;
  std::int64_t chunk_stride = kChunkCols;  ///< of a row
};

struct RingKernels {
  cudaError_t (*linear)(const LinearBatch&, cudaStream_t);
  /// Two weights of the same shape, gate and up, at most 8 columns; null: has to be done in steps.
  cudaError_t (*gated)(const LinearBatch&, const RingOutput&, cudaStream_t);
};

extern const RingKernels kRingE2M1ByE4M3;
extern const RingKernels kRingE2M1ByE8M0;
extern const RingKernels kRingE4M3;
extern const RingKernels kRingE4M3ByGrid;
extern const RingKernels kRingBF16;

/// Whether there is such a kernel for the batch.
[[nodiscard]] bool has_ring(const CudaContext& context, const LinearBatch& batch);
/// Of a packing of such a batch. The input: as is_staged() says for the kernels themselves, or rounded as chunks:
/// x.rounded_stride is kRingStride, and all rows of one chunk are followed by those of the next.
[[nodiscard]] const RingKernels& ring_kernels(Packing packing);

/// Rows of fp32 as chunks of bf16 terms.
[[nodiscard]] cudaError_t round_chunks(const InputView& x, std::int64_t rows, std::int64_t cols, std::uint16_t* to,
                                       cudaStream_t stream);
/// rms_norm() into chunks.
[[nodiscard]] Status norm_and_round_chunks(CudaContext& context, const MatrixView& x, const RowNorm& norm, int terms,
                                           std::uint16_t* to);

}  // namespace vernier::cuda
