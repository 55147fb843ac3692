// What stands behind Weight::owner of a weight in GPU memory.
#pragma once

#include <memory>

#include "backend/backend.h"
#include "backend/cuda/cuda_context.h"
#include "backend/cuda/fragment/weight_ref.h"
#include "backend/cuda/linear/weight_memory.h"

namespace vernier::cuda {

struct PlacedWeight {
  WeightRef ref;                     ///< pointers as they were when the weight was placed
  std::int64_t row_factors_at = -1;  ///< where row factors lie, in bytes from the codes; -1: there are none
  std::int64_t size_bytes = 0;       ///< of everything, from the codes on
  WeightBytes bytes;                 ///< empty where something else owns the memory (records that move)
  /// The device's table of an expert bank whose first gate this is: made by expert_mlp() at the bank's first use.
  mutable std::shared_ptr<const void> bank;
};

/// What stands behind a weight, or null: then its bytes in device memory are as published.
[[nodiscard]] inline const PlacedWeight* placed(const Weight& weight) {
  return static_cast<const PlacedWeight*>(weight.owner.get());
}

/// A weight in device memory as kernels see it. Its pointers are the weight's own, which may have moved since it was
/// placed. kUnsupported for factors a row of a weight that was never placed: they are in host memory.
[[nodiscard]] Result<WeightRef> weight_ref(const Weight& weight);

}  // namespace vernier::cuda
