// The kernels of products that cut columns over several blocks, one set a packing, as split.cc reaches them.
#pragma once

#include "backend/cuda/linear/product.h"
#include "backend/cuda/linear/tiled_input.h"

namespace vernier::cuda {

constexpr int kSplitGroups = 4;                ///< of four warps, 64 rows each
constexpr int kSplitRows = 64 * kSplitGroups;  ///< of a block
constexpr unsigned kSplitThreads = 128 * (kSplitGroups + 1);

constexpr int kSplitRingBytes = 200 * 1024;
constexpr int kSplitSharedBytes = kSplitRingBytes + 1024;

/// A linear's launch. `split` blocks that follow each other share a tile and cut its columns.
struct SplitSource {
  LinearBatch linear;
  TiledInput x;
  float* partials = nullptr;     ///< [tiles, kSegments, sums of a thread, threads that multiply]; null where split is 1
  unsigned* arrivals = nullptr;  ///< [tiles], zeros
  int x_blocks = 0;              ///< of x
  int row_tiles = 0;             ///< of all outputs
  int token_tiles = 0;
  int split = 1;  ///< 1, 2, 4 or 8; all blocks at once on the device where it isn't 1
};

/// Tokens of a tile: 32 * kBlocks.
template <Packing kPacking, int kBlocks>
[[nodiscard]] cudaError_t launch_split(const SplitSource& source, cudaStream_t stream);

/// Whether two blocks of tokens fit a tile: sums of a grid's tiles take the registers of one.
constexpr int most_split_blocks(Packing packing) { return packing == Packing::kE4M3ByGrid ? 1 : 2; }

extern template cudaError_t launch_split<Packing::kE2M1ByE4M3, 1>(const SplitSource&, cudaStream_t);
extern template cudaError_t launch_split<Packing::kE2M1ByE4M3, 2>(const SplitSource&, cudaStream_t);
extern template cudaError_t launch_split<Packing::kE2M1ByE8M0, 1>(const SplitSource&, cudaStream_t);
extern template cudaError_t launch_split<Packing::kE2M1ByE8M0, 2>(const SplitSource&, cudaStream_t);
extern template cudaError_t launch_split<Packing::kE4M3, 1>(const SplitSource&, cudaStream_t);
extern template cudaError_t launch_split<Packing::kE4M3, 2>(const SplitSource&, cudaStream_t);
extern template cudaError_t launch_split<Packing::kE4M3ByGrid, 1>(const SplitSource&, cudaStream_t);
extern template cudaError_t launch_split<Packing::kBF16, 1>(const SplitSource&, cudaStream_t);
extern template cudaError_t launch_split<Packing::kBF16, 2>(const SplitSource&, cudaStream_t);

}  // namespace vernier::cuda
