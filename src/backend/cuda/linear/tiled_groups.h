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

/// A step's tiles of tokens, and how many there may be.
struct AsyncTokens {
  TokenTiles tiles;
  std::int64_t most_tiles = 0;
};
/// The same of experts' tokens, gathered; x's row of a use is its place, or use / top_k.
[[nodiscard]] cudaError_t tile_expert_groups(const ExpertBatch& batch, Packing packing, const AsyncTokens& tokens,
                                             const TiledInput& to, cudaStream_t stream);

}  // namespace vernier::cuda
