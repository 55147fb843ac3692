#include <type_traits>

#include "backend/cuda/linear/wide.h"
#include "backend/cuda/linear/wide_launch.cuh"

namespace vernier::cuda {
namespace {

/// Calls function(std::type_identity<Product>{}) with the kernel of a packing that has but one.
template <class Function>
auto visit_product(Packing packing, Function function) {
  switch (packing) {
    case Packing::kE2M1ByE4M3: return function(std::type_identity<WideProduct<Packing::kE2M1ByE4M3, 2, 8>>{});
    case Packing::kE2M1ByE8M0: return function(std::type_identity<WideProduct<Packing::kE2M1ByE8M0, 2, 8>>{});
    case Packing::kE4M3: return function(std::type_identity<WideProduct<Packing::kE4M3, 2, 8>>{});
    case Packing::kE4M3ByGrid: return function(std::type_identity<WideProduct<Packing::kE4M3ByGrid, 2, 4>>{});
    default: return function(std::type_identity<WideProduct<Packing::kBF16, 2, 8>>{});
  }
}

cudaError_t launch(Packing packing, const ProductSource& source, cudaStream_t stream) {
  using enum Packing;
  switch (packing) {
    case kF16: return launch_wide_of<kF16>(source, stream);
    case kF32: return launch_wide_of<kF32>(source, stream);
    case kGroups4: return launch_wide_of<kGroups4>(source, stream);
    case kGroups4Minimum: return launch_wide_of<kGroups4Minimum>(source, stream);
    case kGroups4Super: return launch_wide_of<kGroups4Super>(source, stream);
    case kGroups4Table: return launch_wide_of<kGroups4Table>(source, stream);
    case kGroups4TableSuper: return launch_wide_of<kGroups4TableSuper>(source, stream);
    case kGroups5: return launch_wide_of<kGroups5>(source, stream);
    case kGroups5Minimum: return launch_wide_of<kGroups5Minimum>(source, stream);
    case kGroups5Super: return launch_wide_of<kGroups5Super>(source, stream);
    case kGroups8: return launch_wide_of<kGroups8>(source, stream);
    case kGroups2Super: return launch_wide_of<kGroups2Super>(source, stream);
    case kGroups3Super: return launch_wide_of<kGroups3Super>(source, stream);
    case kGroups6Super: return launch_wide_of<kGroups6Super>(source, stream);
    default: break;
  }
  return visit_product(
      packing, [&]<class Product>(std::type_identity<Product>) { return launch_wide<Product>(source, stream); });
}

}  // namespace

std::size_t wide_shared_bytes(Packing packing) {
  if (has_small_blocks(packing)) return sizeof(WideProduct<Packing::kGroups2Super, 2, 8>::Shared);  // the largest
  return visit_product(packing,
                       []<class Product>(std::type_identity<Product>) { return sizeof(typename Product::Shared); });
}

bool wants_small_blocks(const ProductSource& source, const WideColumns& columns) {
  // About how much longer a large block takes than a small one.
  constexpr int kCostOfLarge = 8;
  constexpr int kCostOfSmall = 3;
  constexpr int kRows = 128;
  if (const ExpertBatch& experts = source.experts; experts.top_k > 0) {
    return experts.most_tokens * experts.top_k * experts.x.terms < columns.large / 2 * experts.experts;
  }
  int device = 0;
  int multiprocessors = 0;
  if (cudaGetDevice(&device) != cudaSuccess ||
      cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device) != cudaSuccess) {
    return false;
  }
  const LinearBatch& linear = source.linear;
  int row_tiles = 0;
  for (int i = 0; i < linear.count; ++i) row_tiles += (linear.matrix[i].weight.rows + kRows - 1) / kRows;
  const auto waves = [&](int of_block) {
    const int tokens = of_block / linear.x.terms;
    const std::int64_t blocks = std::int64_t{row_tiles} * ((linear.tokens + tokens - 1) / tokens);
    return (blocks + multiprocessors - 1) / multiprocessors;
  };
  return kCostOfSmall * waves(columns.small) < kCostOfLarge * waves(columns.large);
}

cudaError_t wide_linear(Packing packing, const LinearBatch& batch, cudaStream_t stream) {
  return launch(packing, {batch, {}}, stream);
}

cudaError_t wide_experts(Packing packing, const ExpertBatch& batch, cudaStream_t stream) {
  return launch(packing, {{}, batch}, stream);
}

}  // namespace vernier::cuda
