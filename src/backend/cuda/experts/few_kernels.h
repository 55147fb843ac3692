// The launches for experts with few tokens each, one set a packing; each set is compiled in a file of its own.
#pragma once

#include <cuda_runtime_api.h>

#include "backend/cuda/experts/expert_kernels.h"
#include "backend/cuda/linear/product.h"

namespace vernier::cuda {

/// Tokens that a group of a launch may have: 8, or 16 where experts have more on average.
[[nodiscard]] constexpr int few_columns(std::int64_t uses, std::int64_t experts) { return uses > 5 * experts ? 16 : 8; }

/// Shared memory of a block at least, for an input of so many columns.
[[nodiscard]] constexpr std::size_t few_shared_bytes(std::int64_t cols) {
  return 148 * 1024 + 2 * static_cast<std::size_t>(cols + 64);
}

struct FewLaunch {
  ExpertBatch batch = {};           ///< one term a token; groups of at most `columns` tokens
  const MatrixRef* next = nullptr;  ///< of gate and up: down's matrices, [experts]
  int columns = 8;                  ///< 8 or 16
  CombineExperts combine;           ///< of down with one token: done by who comes last; y is null elsewhere
  unsigned* arrivals = nullptr;     ///< for that: a zero for each 32 rows, and zeros again afterwards
  std::size_t shared_bytes = 0;     ///< that a block may have: at least few_shared_bytes()
  unsigned blocks = 0;
  bool has_bulk = false;  ///< whether the device and this build have bulk copies (has_async())
  cudaStream_t stream = nullptr;
};

/// The input of gate_up is rounded already, or one row of fp32.
struct FewKernels {
  cudaError_t (*gate_up)(const FewLaunch&, const GatedOutput&) = nullptr;
  cudaError_t (*down)(const FewLaunch&) = nullptr;
};

extern const FewKernels kFewE2M1ByE4M3;
extern const FewKernels kFewE2M1ByE8M0;
extern const FewKernels kFewE4M3;
extern const FewKernels kFewE4M3ByGrid;

/// Null for packings without.
[[nodiscard]] inline const FewKernels* few_kernels(Packing packing) {
  switch (packing) {
    case Packing::kE2M1ByE4M3: return &kFewE2M1ByE4M3;
    case Packing::kE2M1ByE8M0: return &kFewE2M1ByE8M0;
    case Packing::kE4M3: return &kFewE4M3;
    case Packing::kE4M3ByGrid: return &kFewE4M3ByGrid;
    default: return nullptr;
  }
}

}  // namespace vernier::cuda
