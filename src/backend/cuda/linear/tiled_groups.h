// Input rows as asynchronous products of grouped weights want them (group_packing.h): the tiles of tiled_input.h with
// columns dealt by groups, and where weights have minimums, behind each chunk's tiles one of sums of its groups, in the
// order in which minimums multiply them (AsyncGroups::MinimumGroup). One bf16 term a token.
#pragma once

#include <cuda_runtime_api.h>

#include "backend/cuda/fragment/group_tiles.h"
#include "backend/cuda/linear/tiled_input.h"

namespace vernier::cuda {

/// Rows of fp32 (x.data) into tiles; `to.units` is group_tiles().
[[nodiscard]] cudaError_t tile_group_input(const InputView& x, std::int64_t rows, const WeightRef& weight,
                                           const TiledInput& to, cudaStream_t stream);

/// A step's tiles of tokens, how many there may be, and what becomes tiles: x's row use / top_k, or where there is `up`
/// act(x, up), both by place.
struct GroupedTokens {
  TokenTiles tiles;
  std::int64_t most_tiles = 0;
  const float* up = nullptr;  ///< rows as far apart as x's
  ActivationSpec spec = {};
};
/// The same of experts' tokens, gathered.
[[nodiscard]] cudaError_t tile_expert_groups(const ExpertBatch& batch, Packing packing, const GroupedTokens& tokens,
                                             const TiledInput& to, cudaStream_t stream);

}  // namespace vernier::cuda
