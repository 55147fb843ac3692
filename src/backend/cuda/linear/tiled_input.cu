#include "backend/cuda/fragment/mma.cuh"
#include "backend/cuda/linear/tiled_input.h"
#include "backend/cuda/predecessor.cuh"

namespace vernier::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kUnitsOfBlock = 4;  ///< that a thread block tiles, one after the other
constexpr int kTableThreads = 1024;

/// The rows of a block of 32: null where there is none.
struct RowSource {
  const float* row;
  int cols;
};

/// The pair of columns `col`, `col + 1`.
__device__ __forceinline__ float2 load_pair(const RowSource& from, int col) {
  if (from.row == nullptr) return {0.0F, 0.0F};
  const float* at = from.row + col;
  if (col + 1 < from.cols && reinterpret_cast<std::uintptr_t>(at) % sizeof(float2) == 0) {
    return *reinterpret_cast<const float2*>(at);
  }
  return {col < from.cols ? at[0] : 0.0F, col + 1 < from.cols ? at[1] : 0.0F};
}

/// 256 threads, eight a row: each makes one piece of 16 bytes of every unit from `first_unit` on.
__device__ void tile_rows(const RowSource& from, const TiledInput& to, std::int64_t block, int first_unit) {
  const int row = static_cast<int>(threadIdx.x) / 8;
  const int piece = static_cast<int>(threadIdx.x) % 8;
  const int col = piece / 2 * 4 + piece % 2 * 2;
  const int at = tiled_offset(row, col);
  for (int unit = first_unit; unit < min(first_unit + kUnitsOfBlock, to.units); ++unit) {
    float2 pair[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) pair[i] = load_pair(from, unit * kUnitCols + col + 16 * i);
    if (to.terms == 1) {
      *reinterpret_cast<uint4*>(to.tile(block, unit) + at) = {
          round_pair(pair[0].x, pair[0].y), round_pair(pair[1].x, pair[1].y), round_pair(pair[2].x, pair[2].y),
          round_pair(pair[3].x, pair[3].y)};
      continue;
    }
    std::uint32_t words[3][4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const Bf16Terms low = split_terms(pair[i].x);
      const Bf16Terms high = split_terms(pair[i].y);
#pragma unroll
      for (int term = 0; term < 3; ++term) words[term][i] = pack_upper_halves(low.term[term], high.term[term]);
    }
#pragma unroll
    for (int term = 0; term < 3; ++term) {
      *reinterpret_cast<uint4*>(to.tile(block * 3 + term, unit) + at) = {words[term][0], words[term][1], words[term][2],
                                                                         words[term][3]};
    }
  }
}

__global__ void __launch_bounds__(kThreads)
    tile_input_kernel(const __grid_constant__ InputView x, int rows, int cols, const __grid_constant__ TiledInput to) {
  release_successor();
  wait_for_predecessor();
  const std::int64_t row = std::int64_t{blockIdx.x} * kBlockTokens + threadIdx.x / 8;
  tile_rows({row < rows ? x.data + row * x.stride : nullptr, cols}, to, blockIdx.x,
            static_cast<int>(blockIdx.y) * kUnitsOfBlock);
}

__global__ void __launch_bounds__(kThreads)
    tile_expert_input_kernel(const __grid_constant__ ExpertBatch batch, const __grid_constant__ TokenTiles tiles,
                             const __grid_constant__ TiledInput to) {
  release_successor();
  wait_for_predecessor();
  const int number = static_cast<int>(blockIdx.x);
  if (number >= *tiles.count) return;
  const TokenTile tile = tiles.tile[number];
  const int first = batch.groups.first[tile.group] + tile.first;
  for (int begin = 0; begin < tile.count; begin += kBlockTokens) {
    const int i = begin + static_cast<int>(threadIdx.x) / 8;
    RowSource from = {nullptr, batch.cols};
    if (i < tile.count) from.row = batch.x.data + batch.groups.uses[first + i] / batch.top_k * batch.x.stride;
    tile_rows(from, to, tile.block / to.terms + begin / kBlockTokens, static_cast<int>(blockIdx.y) * kUnitsOfBlock);
  }
}

/// The sum over the threads of a block in front of this one, and of all.
struct Scan {
  int before;
  int all;
};
__device__ Scan scan_block(int own, int* of_warps) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const auto scan_warp = [lane](int value) {
    for (int step = 1; step < 32; step *= 2) {
      const int other = __shfl_up_sync(0xFFFFFFFFU, value, step);
      if (lane >= step) value += other;
    }
    return value;
  };
  const int inclusive = scan_warp(own);
  if (lane == 31) of_warps[warp] = inclusive;
  __syncthreads();
  if (warp == 0) of_warps[lane] = scan_warp(of_warps[lane]);
  __syncthreads();
  const Scan scan = {inclusive - own + (warp > 0 ? of_warps[warp - 1] : 0), of_warps[31]};
  __syncthreads();
  return scan;
}

/// One block; a thread cuts one group.
__global__ void __launch_bounds__(kTableThreads)
    cut_token_tiles_kernel(const __grid_constant__ ExpertGroups groups, int terms, int most, std::int32_t* table) {
  __shared__ int of_warps[32];
  release_successor();
  wait_for_predecessor();
  auto* const tiles = reinterpret_cast<TokenTile*>(table + 4);
  const int count = *groups.count;
  int tiles_before = 0;
  int blocks_before = 0;
  for (int begin = 0; begin < count; begin += kTableThreads) {
    const int group = begin + static_cast<int>(threadIdx.x);
    const int tokens = group < count ? groups.first[group + 1] - groups.first[group] : 0;
    const int blocks = (tokens + kBlockTokens - 1) / kBlockTokens;
    const int pieces = (tokens + most - 1) / most;
    const Scan tile_scan = scan_block(pieces, of_warps);
    const Scan block_scan = scan_block(blocks, of_warps);
    for (int i = 0; i < pieces; ++i) {
      const int first = blocks * i / pieces;
      const int end = blocks * (i + 1) / pieces;
      tiles[tiles_before + tile_scan.before + i] = {group, first * kBlockTokens,
                                                    min(tokens, end * kBlockTokens) - first * kBlockTokens,
                                                    (blocks_before + block_scan.before + first) * terms};
    }
    tiles_before += tile_scan.all;
    blocks_before += block_scan.all;
  }
  if (threadIdx.x == 0) *table = tiles_before;
}

unsigned unit_blocks(const TiledInput& to) {
  return static_cast<unsigned>((to.units + kUnitsOfBlock - 1) / kUnitsOfBlock);
}

}  // namespace

TokenTiles token_tiles(const std::int32_t* table) { return {table, reinterpret_cast<const TokenTile*>(table + 4)}; }

cudaError_t cut_token_tiles(const ExpertGroups& groups, int terms, std::int32_t* table, cudaStream_t stream) {
  return launch_dependent(cut_token_tiles_kernel, dim3(1), kTableThreads, 0, stream, groups, terms,
                          most_tile_tokens(terms), table);
}

cudaError_t tile_input(const InputView& x, std::int64_t rows, std::int64_t cols, const TiledInput& to,
                       cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>((rows + kBlockTokens - 1) / kBlockTokens), unit_blocks(to));
  return launch_dependent(tile_input_kernel, grid, kThreads, 0, stream, x, static_cast<int>(rows),
                          static_cast<int>(cols), to);
}

cudaError_t tile_expert_input(const ExpertBatch& batch, const TokenTiles& tiles, std::int64_t most_tiles,
                              const TiledInput& to, cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>(most_tiles), unit_blocks(to));
  return launch_dependent(tile_expert_input_kernel, grid, kThreads, 0, stream, batch, tiles, to);
}

}  // namespace vernier::cuda
