// What follows the activation of a lone token's experts on Hopper: down of each, and their weighted sum. A block takes
// row tiles of all of them, so that the sum is made where the products are, in the order of combine.cuh.
#pragma once

#include "backend/cuda/experts/few_kernels.h"
#include "backend/cuda/experts/shared_memory.cuh"
#include "backend/cuda/experts/single_gate_up.cuh"
#include "backend/cuda/experts/single_product.cuh"
#include "backend/cuda/predecessor.cuh"

namespace vernier::cuda {

struct SingleDown {
  const std::int32_t* ids;      ///< [uses]
  const float* weights;         ///< [uses]
  const MatrixRef* matrix;      ///< [experts]
  const std::uint16_t* hidden;  ///< [uses, stride]
  std::int64_t stride;
  float* y;
  int uses;
  int part_of_use;  ///< 2^16 / uses, rounded up
  int experts;
  int rows;
  int tiles;
  SingleCut cut;
  SingleMemory memory;  ///< with the uses, and then results [tile][use][row], behind it
};

/// A use in shared memory.
struct SingleUse {
  int expert;  ///< -1: none, -2: one that there isn't
  float weight;
};

#ifdef __CUDACC__

/// Grid: row tiles, or as many blocks as multiprocessors, each of which takes every so many-th. The kernel of gate and
/// up begins this one only after its own wait: what kernels in front of that have written (the routing, the rows to add
/// to) is there.
template <Packing kPacking>
__global__ void __launch_bounds__(kSingleThreads, 2) single_down_kernel(const __grid_constant__ SingleDown args) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ __align__(128) unsigned char memory[];
  release_successor();
  const auto blocks = static_cast<int>(gridDim.x);
  const auto block = static_cast<int>(blockIdx.x);
  const auto row_in_tile = static_cast<int>(threadIdx.x) % kTileRows;
  const auto number = static_cast<int>(threadIdx.x) / kTileRows;  // of the row tile that the thread finishes a row of
  const int own_tiles = (args.tiles - block + blocks - 1) / blocks;
  const int products = own_tiles * args.uses;
  const SingleProduct<kPacking, true> product(args.cut, args.memory, memory, products, 0);
  auto* const uses = reinterpret_cast<SingleUse*>(memory + args.memory.rest);
  auto* const results = reinterpret_cast<float*>(uses + args.uses);
  const auto use_of = [&](int at) { return at - (at * args.part_of_use >> 16) * args.uses; };
  const auto tile_of = [&](int at) { return block + (at * args.part_of_use >> 16) * blocks; };
  const int row = tile_of(number) * kTileRows + row_in_tile;
  const int y_row = (block + number * blocks) * kTileRows + row_in_tile;
  const bool adds = number < own_tiles && y_row < args.rows;
  product.look_up(products, args.experts, [&](int at) -> SinglePlace {
    const int use = use_of(at);
    return {args.matrix, __ldcg(args.ids + use), tile_of(at), args.hidden + use * args.stride};
  });
  if (static_cast<int>(threadIdx.x) < args.uses) {
    const int expert = __ldcg(args.ids + threadIdx.x);
    const bool is_wrong = expert < -1 || expert >= args.experts;
    uses[threadIdx.x] = {is_wrong ? -2 : expert, __ldcg(args.weights + threadIdx.x)};
  }
  __syncthreads();
  auto feed = product.begin();
  auto inputs = feed;
  product.template fill<false>(feed);
  const float y = adds ? __ldcg(args.y + y_row) : 0.0F;
  const bool finishes = number < products && row < args.rows && product.tiles[number].codes != nullptr;
  SingleFinish finish;
  if (finishes) {
    finish.begin(args.matrix[product.tiles[number].expert]);
    finish.read(row);
  }
  wait_for_predecessor();
  product.template fill<true>(inputs);
  product.run(feed);
  __syncthreads();
  if (finishes) results[threadIdx.x] = finish.value(product.total(number, row_in_tile));
  __syncthreads();
  if (!adds) return;
  float sum = y;
#pragma unroll 4
  for (int j = 0; j < args.uses; ++j) {
    const int expert = uses[j].expert;
    if (expert == -1) continue;  // computed elsewhere
    const float result =
        expert >= 0 ? results[(number * args.uses + j) * kTileRows + row_in_tile] : __int_as_float(0x7FC00000);
    sum = __fadd_rn(sum, __fmul_rn(uses[j].weight, result));
  }
  args.y[y_row] = sum;
#endif
}

constexpr int kMostUnevenChunks = 4;  ///< of a warp

/// Launches if all suits; else `is_done` stays false.
template <Packing kPacking>
cudaError_t launch_single_down(const FewLaunch& launch, bool& is_done) {
  const ExpertBatch& batch = launch.batch;
  is_done = false;
  constexpr std::size_t kTaken = single_gate_up_bytes(kPacking) + 1024;  // and what each block takes anyway
  if (!launch.has_bulk || launch.arrivals == nullptr || launch.shared_bytes < kTaken) return cudaSuccess;
  const int uses = batch.most_groups;
  const int tiles = (batch.rows + kTileRows - 1) / kTileRows;
  const int blocks = std::min(static_cast<int>(launch.blocks), tiles);
  const int most_tiles = (tiles + blocks - 1) / blocks;
  const int products = most_tiles * uses;
  const SingleCut cut(batch.cols);
  const int rest = uses * static_cast<int>(sizeof(SingleUse)) + products * kTileRows * static_cast<int>(sizeof(float));
  const SingleMemory memory(cut, products, SingleStage<kPacking, true>::kBytes, rest, launch.shared_bytes - kTaken);
  if (products > kMostSingleTiles || memory.depth == 0) return cudaSuccess;
  // Of long rows, blocks with a tile more than others would be what all wait for.
  const bool is_even = tiles * 10 >= blocks * most_tiles * 9;
  if (!is_even && most_chunks(cut, products) > kMostUnevenChunks) return cudaSuccess;
  const SingleDown args = {.ids = batch.groups.expert,
                           .weights = launch.combine.weights,
                           .matrix = batch.matrix[0],
                           .hidden = batch.x.rounded,
                           .stride = batch.x.rounded_stride,
                           .y = launch.combine.y,
                           .uses = uses,
                           .part_of_use = (0x10000 + uses - 1) / uses,
                           .experts = batch.experts,
                           .rows = batch.rows,
                           .tiles = tiles,
                           .cut = cut,
                           .memory = memory};
  is_done = true;
  return launch_leaving_room(single_down_kernel<kPacking>, dim3(static_cast<unsigned>(blocks)), kSingleThreads,
                             static_cast<std::size_t>(memory.size), launch.stream, args);
}

#endif

}  // namespace vernier::cuda
