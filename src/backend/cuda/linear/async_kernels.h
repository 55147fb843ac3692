// The kernels of asynchronous products, one a packing, as async.cc reaches them.
#pragma once

#include "backend/cuda/linear/product.h"
#include "backend/cuda/linear/tiled_input.h"

namespace vernier::cuda {

constexpr unsigned kAsyncThreads = 384;
constexpr int kAsyncSharedBytes = 227 * 1024;

/// Blocks of 32 tokens of a wide tile, and for which packings there are such tiles: a stage of more codes takes so much
/// memory that there is room for two alone.
constexpr int kWideBlocks = 8;
constexpr bool has_wide_tiles(Packing packing) {
  return packing != Packing::kE4M3ByGrid && packing < Packing::kBF16 && packing != Packing::kNone;
}

/// What a launch computes: a linear's outputs or, where top_k isn't 0, experts'.
struct AsyncSource {
  LinearBatch linear;
  ExpertBatch experts;
  TokenTiles tiles;  ///< of experts
  TiledInput x;
  TiledInput hidden;  ///< of gate and up; else null
  ActivationSpec spec;
  int blocks = 0;       ///< of a linear's tiles of tokens
  int row_tiles = 0;    ///< a block each
  int token_tiles = 0;  ///< of a linear
};

struct AsyncLaunch {
  unsigned blocks;  ///< even
  cudaStream_t stream;
};

template <Packing kPacking>
[[nodiscard]] cudaError_t launch_async(const AsyncSource& source, const AsyncLaunch& how);

extern template cudaError_t launch_async<Packing::kE2M1ByE4M3>(const AsyncSource&, const AsyncLaunch&);
extern template cudaError_t launch_async<Packing::kE2M1ByE8M0>(const AsyncSource&, const AsyncLaunch&);
extern template cudaError_t launch_async<Packing::kE4M3>(const AsyncSource&, const AsyncLaunch&);
extern template cudaError_t launch_async<Packing::kE4M3ByGrid>(const AsyncSource&, const AsyncLaunch&);
extern template cudaError_t launch_async<Packing::kBF16>(const AsyncSource&, const AsyncLaunch&);

}  // namespace vernier::cuda
