// The launches of narrow products, one set a packing; each set is compiled in a file of its own.
#pragma once

#include "backend/cuda/linear/product.h"

namespace vernier::cuda {

struct NarrowKernels {
  cudaError_t (*linear)(const LinearBatch&, cudaStream_t);
  /// Two weights of the same shape, gate and up; null: has to be done in steps.
  cudaError_t (*gated)(const LinearBatch&, const GatedOutput&, cudaStream_t);
  cudaError_t (*gate_up)(const ExpertBatch&, const GatedOutput&, cudaStream_t);  ///< null: has to be done in steps
  cudaError_t (*experts)(const ExpertBatch&, cudaStream_t);
};

extern const NarrowKernels kNarrowE2M1ByE4M3;
extern const NarrowKernels kNarrowE2M1ByE8M0;
extern const NarrowKernels kNarrowE4M3;
extern const NarrowKernels kNarrowE4M3ByGrid;
extern const NarrowKernels kNarrowBF16;
extern const NarrowKernels kNarrowF16;
extern const NarrowKernels kNarrowF32;
extern const NarrowKernels kNarrowGroups4;
extern const NarrowKernels kNarrowGroups4Minimum;
extern const NarrowKernels kNarrowGroups4Super;
extern const NarrowKernels kNarrowGroups4Table;
extern const NarrowKernels kNarrowGroups4TableSuper;
extern const NarrowKernels kNarrowGroups5;
extern const NarrowKernels kNarrowGroups5Minimum;
extern const NarrowKernels kNarrowGroups5Super;
extern const NarrowKernels kNarrowGroups8;
extern const NarrowKernels kNarrowGroups2Super;
extern const NarrowKernels kNarrowGroups3Super;
extern const NarrowKernels kNarrowGroups6Super;

/// Whether a narrow product keeps the input in the shared memory of each block: few columns of B that aren't too long.
/// Else it must be rounded beforehand.
[[nodiscard]] inline bool is_staged(const LinearBatch& batch) {
  constexpr std::int64_t kMostBytes = 40 << 10;
  const std::int64_t columns = std::int64_t{batch.tokens} * batch.x.terms;
  return columns <= 8 && 2 * columns * batch.matrix[0].weight.units * kUnitCols <= kMostBytes;
}

/// Whether there are so many row tiles that a block takes two, which share what they read of the input.
[[nodiscard]] bool has_many_tiles(const LinearBatch& batch);

/// Of a packing other than kNone.
[[nodiscard]] inline const NarrowKernels& narrow_kernels(Packing packing) {
  switch (packing) {
    case Packing::kE2M1ByE4M3: return kNarrowE2M1ByE4M3;
    case Packing::kE2M1ByE8M0: return kNarrowE2M1ByE8M0;
    case Packing::kE4M3: return kNarrowE4M3;
    case Packing::kE4M3ByGrid: return kNarrowE4M3ByGrid;
    case Packing::kF16: return kNarrowF16;
    case Packing::kF32: return kNarrowF32;
    case Packing::kGroups4: return kNarrowGroups4;
    case Packing::kGroups4Minimum: return kNarrowGroups4Minimum;
    case Packing::kGroups4Super: return kNarrowGroups4Super;
    case Packing::kGroups4Table: return kNarrowGroups4Table;
    case Packing::kGroups4TableSuper: return kNarrowGroups4TableSuper;
    case Packing::kGroups5: return kNarrowGroups5;
    case Packing::kGroups5Minimum: return kNarrowGroups5Minimum;
    case Packing::kGroups5Super: return kNarrowGroups5Super;
    case Packing::kGroups8: return kNarrowGroups8;
    case Packing::kGroups2Super: return kNarrowGroups2Super;
    case Packing::kGroups3Super: return kNarrowGroups3Super;
    case Packing::kGroups6Super: return kNarrowGroups6Super;
    default: return kNarrowBF16;
  }
}

}  // namespace vernier::cuda
