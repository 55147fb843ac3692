// Input rows as asynchronous tensor-core products want them (fragment/wgmma.cuh): bf16, in tiles that a block copies in
// one piece. Host and device.
//
// Rows go by blocks of 32, columns by units of 64: block b's unit u is the kTileBytes at (b * units + u) * kTileBytes,
// 128 bytes a row. In it columns are permuted as packed weights are, and a row's pieces of 16 bytes by its number, so
// that eight rows of one column lie in different banks.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "backend/cuda/fragment/packing.h"
#include "backend/cuda/linear/product.h"

namespace vernier::cuda {

constexpr int kBlockTokens = 32;
constexpr int kTileBytes = kBlockTokens * kUnitCols * 2;

/// Rows of a tiled input. With three terms a token, blocks 3b .. 3b + 2 hold one term each of the same 32 tokens.
struct TiledInput {
  std::byte* data = nullptr;
  std::int32_t units = 0;  ///< of a row
  std::int32_t terms = 1;
  [[nodiscard]] VN_HOST_DEVICE std::byte* tile(std::int64_t block, int unit) const {
    return data + (block * units + unit) * kTileBytes;
  }
};

/// Where column `col` of a unit lies in row `row` of a tile: bytes.
VN_HOST_DEVICE constexpr int tiled_offset(int row, int col) {
  const int piece = col % 16 / 4 * 2 + col % 4 / 2;  // fragment, and which half of its k
  return row * 128 + (piece ^ row % 8) * 16 + col / 16 * 4 + col % 2 * 2;
}

/// Columns of a product that a block takes at a time: up to 128, some tokens of one expert or linear.
struct TokenTile {
  std::int32_t group;  ///< of ExpertGroups
  std::int32_t first;  ///< token, counted from the group's first
  std::int32_t count;
  std::int32_t block;  ///< of the tiled input
};

/// Most tokens of a tile.
constexpr int most_tile_tokens(int terms) { return terms == 1 ? 4 * kBlockTokens : kBlockTokens; }

/// Tiles of a step's experts, on the device.
struct TokenTiles {
  const std::int32_t* count = nullptr;  ///< [1]
  const TokenTile* tile = nullptr;      ///< [count]
};
/// 32-bit numbers in their table, and the most tiles and blocks of tiled input (for one term) that uses can take.
[[nodiscard]] constexpr std::int64_t most_token_tiles(std::int64_t uses, std::int64_t groups, int terms) {
  return uses / most_tile_tokens(terms) + groups;
}
[[nodiscard]] constexpr std::int64_t most_token_blocks(std::int64_t uses, std::int64_t groups) {
  return uses / kBlockTokens + groups;
}
[[nodiscard]] constexpr std::int64_t token_tiles_size(std::int64_t uses, std::int64_t groups, int terms) {
  return 4 + 4 * most_token_tiles(uses, groups, terms);
}
[[nodiscard]] TokenTiles token_tiles(const std::int32_t* table);
/// Cuts groups into tiles of like size.
[[nodiscard]] cudaError_t cut_token_tiles(const ExpertGroups& groups, int terms, std::int32_t* table,
                                          cudaStream_t stream);

/// Rows of fp32 (x.data) into tiles; rows up to the next multiple of 32 and columns up to the end of the last unit
/// become zeros.
[[nodiscard]] cudaError_t tile_input(const InputView& x, std::int64_t rows, std::int64_t cols, const TiledInput& to,
                                     cudaStream_t stream);
/// rms_norm() of the rows of `x` into tiles; columns as above, but rows beyond the last stay as they are: products with
/// them go nowhere.
[[nodiscard]] Status norm_and_tile(CudaContext& context, const MatrixView& x, const RowNorm& norm,
                                   const TiledInput& to);
/// tile_input() of experts' tokens, gathered: x's row of a use is use / top_k.
[[nodiscard]] cudaError_t tile_expert_input(const ExpertBatch& batch, const TokenTiles& tiles, std::int64_t most_tiles,
                                            const TiledInput& to, cudaStream_t stream);

}  // namespace vernier::cuda
