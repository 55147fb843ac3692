// act(gate, up) of a lone token's experts on Hopper: blocks take row tiles of both that follow each other through the
// experts.
#pragma once

#include "backend/cuda/experts/few_kernels.h"
#include "backend/cuda/experts/gate.cuh"
#include "backend/cuda/experts/shared_memory.cuh"
#include "backend/cuda/experts/single_product.cuh"
#include "backend/cuda/linear/narrow_input.cuh"
#include "backend/cuda/predecessor.cuh"

namespace vernier::cuda {

struct SingleGateUp {
  const std::int32_t* ids;     ///< [uses]
  const MatrixRef* matrix[2];  ///< [experts] of gate, and of up
  const MatrixRef* down;       ///< of the kernel that follows
  const float* x;              ///< the token, fp32, aligned to 16 bytes
  GatedOutput output;
  int experts;
  int cols;   ///< a multiple of 4
  int rows;   ///< of each matrix
  int tiles;  ///< of these
  int pairs;  ///< that a block has at least
  int more;   ///< blocks, the first, with one more
  SingleCut cut;
  SingleMemory memory;  ///< with the input behind it
};

#ifdef __CUDACC__
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

/// The input on its way into shared memory, four columns at a time.
struct SingleInput {
  static constexpr int kHeld = 2;  ///< more are read later
  static constexpr int kStep = kSingleThreads * 4;
  const SingleGateUp& args;
  float4 held[kHeld];

  __device__ __forceinline__ explicit SingleInput(const SingleGateUp& of) : args(of) {
#pragma unroll
    for (int i = 0; i < kHeld; ++i) held[i] = load(static_cast<int>(threadIdx.x) * 4 + i * kStep);
  }
  [[nodiscard]] __device__ __forceinline__ float4 load(int col) const {
    if (col >= args.cols) return make_float4(0.0F, 0.0F, 0.0F, 0.0F);
    return *reinterpret_cast<const float4*>(args.x + col);
  }
  __device__ __forceinline__ void store(std::uint16_t* to) const {
    const int padded = args.cut.units * kUnitCols;
    int col = static_cast<int>(threadIdx.x) * 4;
#pragma unroll
    for (int i = 0; i < kHeld; ++i, col += kStep) {
      if (col < padded) store_columns(to + col, 0, 1, held[i]);
    }
#pragma unroll 1
    for (; col < padded; col += kStep) store_columns(to + col, 0, 1, load(col));
  }
};

#endif

/// Grid: as many blocks as multiprocessors, or fewer.
template <Packing kPacking>
__global__ void __launch_bounds__(kSingleThreads, 2) single_gate_up_kernel(const __grid_constant__ SingleGateUp args) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ __align__(128) unsigned char memory[];
  const auto block = static_cast<int>(blockIdx.x);
  const int begin = block * args.pairs + min(block, args.more);
  const int pairs = args.pairs + (block < args.more ? 1 : 0);
  const SingleProduct<kPacking, false> product(args.cut, args.memory, memory, 2 * pairs, args.memory.rest);
  prefetch_table(args.matrix[0], args.experts);
  prefetch_table(args.matrix[1], args.experts);
  prefetch_table(args.down, args.experts);
  wait_for_predecessor();
  // Down asks for its weights as soon as it can: which experts there are, it may know by then.
  release_successor();
  const SingleInput input(args);
  product.look_up(2 * pairs, args.experts, [&](int at) -> SinglePlace {
    const int use = (begin + at / 2) / args.tiles;
    return {args.matrix[at % 2], __ldcg(args.ids + use), begin + at / 2 - use * args.tiles, nullptr};
  });
  input.store(reinterpret_cast<std::uint16_t*>(memory + args.memory.rest));
  __syncthreads();
  auto feed = product.begin();
  product.template fill<false>(feed);
  // While weights are on their way: what a thread needs that finishes a row.
  const auto pair = static_cast<int>(threadIdx.x) / kTileRows;
  const auto row_in_tile = static_cast<int>(threadIdx.x) % kTileRows;
  const int use = (begin + pair) / args.tiles;
  const int row = (begin + pair - use * args.tiles) * kTileRows + row_in_tile;
  const bool finishes = pair < pairs && row < args.rows && product.tiles[2 * pair].codes != nullptr;
  SingleFinish finish[2];
  if (finishes) {
    for (int i = 0; i < 2; ++i) finish[i].begin(args.matrix[i][product.tiles[2 * pair].expert]);
    for (SingleFinish& each : finish) each.read(row);
  }
  product.run(feed);
  __syncthreads();
  if (!finishes) return;
  const float gate = finish[0].value(product.total(2 * pair, row_in_tile));
  const float up = finish[1].value(product.total(2 * pair + 1, row_in_tile));
  store_terms(args.output.hidden + use * args.output.stride + row, 0, 1, gated(args.output.spec, gate, up));
#endif
}

/// Shared memory that a block takes at most: down's and a router's find room beside it.
constexpr std::size_t single_gate_up_bytes(Packing packing) { return (code_bits(packing) == 8 ? 145 : 122) * 1024; }

/// Launches if all suits; else `is_done` stays false.
template <Packing kPacking>
cudaError_t launch_single_gate_up(const FewLaunch& launch, const GatedOutput& output, bool& is_done) {
  const ExpertBatch& batch = launch.batch;
  is_done = false;
  if (!launch.has_bulk || batch.groups.count != nullptr || batch.x.rounded != nullptr || batch.cols % 4 != 0 ||
      reinterpret_cast<std::uintptr_t>(batch.x.data) % 16 != 0) {
    return cudaSuccess;
  }
  const int tiles = (batch.rows + kTileRows - 1) / kTileRows;
  const int pairs = tiles * batch.most_groups;
  const int blocks = std::min(static_cast<int>(launch.blocks), pairs);
  const int most_pairs = (pairs + blocks - 1) / blocks;
  const SingleCut cut(batch.cols);
  const SingleMemory memory(cut, 2 * most_pairs, SingleStage<kPacking, false>::kBytes, cut.units * kUnitCols * 2,
                            single_gate_up_bytes(kPacking));
  if (2 * most_pairs > kMostSingleTiles || memory.depth == 0) return cudaSuccess;
  const SingleGateUp args = {.ids = batch.groups.expert,
                             .matrix = {batch.matrix[0], batch.matrix[1]},
                             .down = launch.next,
                             .x = batch.x.data,
                             .output = output,
                             .experts = batch.experts,
                             .cols = batch.cols,
                             .rows = batch.rows,
                             .tiles = tiles,
                             .pairs = pairs / blocks,
                             .more = pairs % blocks,
                             .cut = cut,
                             .memory = memory};
  is_done = true;
  return launch_leaving_room(single_gate_up_kernel<kPacking>, dim3(static_cast<unsigned>(blocks)), kSingleThreads,
                             static_cast<std::size_t>(memory.size), launch.stream, args);
}

#endif

}  // namespace vernier::cuda
