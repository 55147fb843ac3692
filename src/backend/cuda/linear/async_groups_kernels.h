// The kernels of asynchronous products of grouped weights, as async.cc reaches them.
#pragma once

#include "backend/cuda/linear/async_kernels.h"

namespace vernier::cuda {

/// With one term a token: linears, or one or two matrices of experts.
template <Packing kPacking>
[[nodiscard]] cudaError_t launch_async_groups(const AsyncSource& source, const AsyncLaunch& how);

extern template cudaError_t launch_async_groups<Packing::kGroups4>(const AsyncSource&, const AsyncLaunch&);
extern template cudaError_t launch_async_groups<Packing::kGroups4Minimum>(const AsyncSource&, const AsyncLaunch&);
extern template cudaError_t launch_async_groups<Packing::kGroups4Super>(const AsyncSource&, const AsyncLaunch&);
extern template cudaError_t launch_async_groups<Packing::kGroups4Table>(const AsyncSource&, const AsyncLaunch&);
extern template cudaError_t launch_async_groups<Packing::kGroups4TableSuper>(const AsyncSource&, const AsyncLaunch&);
extern template cudaError_t launch_async_groups<Packing::kGroups5>(const AsyncSource&, const AsyncLaunch&);
extern template cudaError_t launch_async_groups<Packing::kGroups5Minimum>(const AsyncSource&, const AsyncLaunch&);
extern template cudaError_t launch_async_groups<Packing::kGroups5Super>(const AsyncSource&, const AsyncLaunch&);
extern template cudaError_t launch_async_groups<Packing::kGroups8>(const AsyncSource&, const AsyncLaunch&);
extern template cudaError_t launch_async_groups<Packing::kGroups2Super>(const AsyncSource&, const AsyncLaunch&);
extern template cudaError_t launch_async_groups<Packing::kGroups3Super>(const AsyncSource&, const AsyncLaunch&);
extern template cudaError_t launch_async_groups<Packing::kGroups6Super>(const AsyncSource&, const AsyncLaunch&);

}  // namespace vernier::cuda
