// The kernels of wide products of packings that have no better ones on any device, as wide.cu reaches them.
#pragma once

#include "backend/cuda/linear/product.h"

namespace vernier::cuda {

/// Columns of the two kinds of blocks.
struct WideColumns {
  int large;
  int small;
};
[[nodiscard]] bool wants_small_blocks(const ProductSource& source, const WideColumns& columns);

template <Packing kPacking>
[[nodiscard]] cudaError_t launch_wide_of(const ProductSource& source, cudaStream_t stream);

extern template cudaError_t launch_wide_of<Packing::kF16>(const ProductSource&, cudaStream_t);
extern template cudaError_t launch_wide_of<Packing::kF32>(const ProductSource&, cudaStream_t);
extern template cudaError_t launch_wide_of<Packing::kGroups4>(const ProductSource&, cudaStream_t);
extern template cudaError_t launch_wide_of<Packing::kGroups4Minimum>(const ProductSource&, cudaStream_t);
extern template cudaError_t launch_wide_of<Packing::kGroups4Super>(const ProductSource&, cudaStream_t);
extern template cudaError_t launch_wide_of<Packing::kGroups4Table>(const ProductSource&, cudaStream_t);
extern template cudaError_t launch_wide_of<Packing::kGroups4TableSuper>(const ProductSource&, cudaStream_t);
extern template cudaError_t launch_wide_of<Packing::kGroups5>(const ProductSource&, cudaStream_t);
extern template cudaError_t launch_wide_of<Packing::kGroups5Minimum>(const ProductSource&, cudaStream_t);
extern template cudaError_t launch_wide_of<Packing::kGroups5Super>(const ProductSource&, cudaStream_t);
extern template cudaError_t launch_wide_of<Packing::kGroups8>(const ProductSource&, cudaStream_t);
extern template cudaError_t launch_wide_of<Packing::kGroups2Super>(const ProductSource&, cudaStream_t);
extern template cudaError_t launch_wide_of<Packing::kGroups3Super>(const ProductSource&, cudaStream_t);
extern template cudaError_t launch_wide_of<Packing::kGroups6Super>(const ProductSource&, cudaStream_t);

}  // namespace vernier::cuda
