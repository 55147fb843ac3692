// The kernels of wide products of packings that have no better ones on any device, as wide.cu reaches them.
#pragma once

#include "backend/cuda/linear/product.h"

namespace vernier::cuda {

/// Whose products a launch makes: a linear's or, where top_k isn't 0, experts'.
struct WideSource {
  LinearBatch linear;
  ExpertBatch experts;
};

/// Columns of the two kinds of blocks.
struct WideColumns {
  int large;
  int small;
};
[[nodiscard]] bool wants_small_blocks(const WideSource& source, const WideColumns& columns);

template <Packing kPacking>
[[nodiscard]] cudaError_t launch_wide_of(const WideSource& source, cudaStream_t stream);

extern template cudaError_t launch_wide_of<Packing::kF16>(const WideSource&, cudaStream_t);
extern template cudaError_t launch_wide_of<Packing::kGroups4>(const WideSource&, cudaStream_t);
extern template cudaError_t launch_wide_of<Packing::kGroups4Minimum>(const WideSource&, cudaStream_t);
extern template cudaError_t launch_wide_of<Packing::kGroups4Super>(const WideSource&, cudaStream_t);
extern template cudaError_t launch_wide_of<Packing::kGroups4Table>(const WideSource&, cudaStream_t);
extern template cudaError_t launch_wide_of<Packing::kGroups4TableSuper>(const WideSource&, cudaStream_t);
extern template cudaError_t launch_wide_of<Packing::kGroups5>(const WideSource&, cudaStream_t);
extern template cudaError_t launch_wide_of<Packing::kGroups5Minimum>(const WideSource&, cudaStream_t);
extern template cudaError_t launch_wide_of<Packing::kGroups5Super>(const WideSource&, cudaStream_t);
extern template cudaError_t launch_wide_of<Packing::kGroups8>(const WideSource&, cudaStream_t);
extern template cudaError_t launch_wide_of<Packing::kGroups2Super>(const WideSource&, cudaStream_t);
extern template cudaError_t launch_wide_of<Packing::kGroups3Super>(const WideSource&, cudaStream_t);
extern template cudaError_t launch_wide_of<Packing::kGroups6Super>(const WideSource&, cudaStream_t);

}  // namespace vernier::cuda
