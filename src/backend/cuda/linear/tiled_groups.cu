#include "backend/cuda/experts/gate_all.cuh"
#include "backend/cuda/fragment/group_stage.cuh"
#include "backend/cuda/fragment/mma.cuh"
#include "backend/cuda/linear/tiled_groups.h"
#include "backend/cuda/predecessor.cuh"

namespace vernier::cuda {
namespace {

constexpr int kThreads = 256;  // eight a row: each makes a piece of 16 bytes of every unit

struct GroupRows {
  int rows;
  int cols;
  int units;
  GroupShape shape;
};

__device__ __forceinline__ float2 load_pair(const float* row, int col, int cols) {
  if (row == nullptr) return {0.0F, 0.0F};
  const float* at = row + col;
  if (col + 1 < cols && reinterpret_cast<std::uintptr_t>(at) % sizeof(float2) == 0) {
    return *reinterpret_cast<const float2*>(at);
  }
  return {col < cols ? at[0] : 0.0F, col + 1 < cols ? at[1] : 0.0F};
}

/// The sum of the group that the pairs belong to, which other threads of the row share: added as sum_group() does.
__device__ __forceinline__ float sum_of_group(const GroupShape& shape, const std::uint32_t (&words)[4]) {
  float own[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    own[i] = add_halves(words[i]);
    own[i] = __fadd_rn(own[i], __shfl_xor_sync(0xFFFFFFFFU, own[i], 1));
    if (shape.group_cols() == 32) own[i] = __fadd_rn(own[i], __shfl_xor_sync(0xFFFFFFFFU, own[i], 2));
  }
  return __fadd_rn(__fadd_rn(own[0], own[1]), __fadd_rn(own[2], own[3]));
}

/// Puts the terms of a group's sum where the fragments of minimums want them.
__device__ __forceinline__ void put_sum(const GroupShape& shape, std::byte* tile, int row, int group, float sum) {
  const Bf16Terms split = split_terms(sum);
  const auto put = [&](int piece, int lane, int low, float value) {
    *reinterpret_cast<std::uint16_t*>(tile + group_piece_offset(row, piece) + lane * 4 + low * 2) = upper_half(value);
  };
  if (shape.group_cols() == 16) {
    const int place = sum_place(shape, group, 0);
#pragma unroll
    for (int term = 0; term < 3; ++term) put(term * 2 + place % 4 / 2, place / 4, place % 2, split.term[term]);
    return;
  }
#pragma unroll
  for (int piece = 0; piece < 6; ++piece) {
    const float value = piece == 3 && shape.has_factors() ? 0.0F : split.term[piece % 3];
    put(piece, group / 2, group % 2, value);
  }
}

/// Reads pairs of a row: zeros where there is none.
struct PlainPairs {
  const float* row;
  __device__ __forceinline__ void read(int col, int step, int cols, float2 (&pair)[4]) const {
#pragma unroll
    for (int i = 0; i < 4; ++i) pair[i] = load_pair(row, col + i * step, cols);
  }
};
/// Those of act(gate, up).
struct GatedPairs {
  PlainPairs gate;
  PlainPairs up;
  const ActivationSpec& spec;
  __device__ __forceinline__ void read(int col, int step, int cols, float2 (&pair)[4]) const {
    float2 of_gate[4];
    float2 of_up[4];
    gate.read(col, step, cols, of_gate);
    up.read(col, step, cols, of_up);
    float values[8];
    float factors[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      values[i] = i % 2 == 0 ? of_gate[i / 2].x : of_gate[i / 2].y;
      factors[i] = i % 2 == 0 ? of_up[i / 2].x : of_up[i / 2].y;
    }
    gate_all(spec, values, factors);
#pragma unroll
    for (int i = 0; i < 4; ++i) pair[i] = {values[2 * i], values[2 * i + 1]};
  }
};

/// All threads of a block: chunk blockIdx.y of a block of rows, of which `pairs` reads the thread's own.
template <class Pairs>
__device__ void tile_chunk(const Pairs& pairs, const GroupRows& from, const TiledInput& to, std::int64_t block) {
  const GroupShape& shape = from.shape;
  const int row = static_cast<int>(threadIdx.x) / 8;
  const int piece = static_cast<int>(threadIdx.x) % 8;
  const int chunk = static_cast<int>(blockIdx.y);
  const int first = group_piece_column(shape, piece);
  const int first_tile = chunk * (kChunkUnits + (shape.has_minimum ? 1 : 0));
  const int units = min(kChunkUnits, from.units - chunk * kChunkUnits);
#pragma unroll
  for (int unit = 0; unit < kChunkUnits; ++unit) {
    if (unit >= units && !shape.has_minimum) break;
    float2 pair[4];
    pairs.read((chunk * kChunkUnits + unit) * kUnitCols + first, group_step(shape), from.cols, pair);
    std::uint32_t words[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) words[i] = round_pair(pair[i].x, pair[i].y);
    if (unit < units) {
      *reinterpret_cast<uint4*>(to.tile(block, first_tile + unit) + group_piece_offset(row, piece)) = {
          words[0], words[1], words[2], words[3]};
    }
    if (!shape.has_minimum) continue;
    const float sum = sum_of_group(shape, words);
    const int pieces = shape.group_cols() / 8;  // of a group
    if (piece % pieces == 0) {
      put_sum(shape, to.tile(block, first_tile + units), row, unit * (8 / pieces) + piece / pieces, sum);
    }
  }
}

__global__ void __launch_bounds__(kThreads)
    tile_group_kernel(const __grid_constant__ InputView x, const __grid_constant__ GroupRows from,
                      const __grid_constant__ TiledInput to) {
  release_successor();
  wait_for_predecessor();
  const std::int64_t row = std::int64_t{blockIdx.x} * kBlockTokens + threadIdx.x / 8;
  tile_chunk(PlainPairs{row < from.rows ? x.data + row * x.stride : nullptr}, from, to, blockIdx.x);
}

__global__ void __launch_bounds__(kThreads)
    tile_expert_groups_kernel(const __grid_constant__ ExpertBatch batch, const __grid_constant__ GroupedTokens tokens,
                              const __grid_constant__ GroupRows from, const __grid_constant__ TiledInput to) {
  release_successor();
  wait_for_predecessor();
  const int number = static_cast<int>(blockIdx.x);
  if (number >= *tokens.tiles.count) return;
  const TokenTile tile = tokens.tiles.tile[number];
  const int first = batch.groups.first[tile.group] + tile.first;
  for (int begin = 0; begin < tile.count; begin += kBlockTokens) {
    const int i = begin + static_cast<int>(threadIdx.x) / 8;
    const std::int64_t block = tile.block + begin / kBlockTokens;
    const bool is_there = i < tile.count;
    if (tokens.up != nullptr) {
      const std::int64_t at = (first + i) * batch.x.stride;
      const PlainPairs gate = {is_there ? batch.x.data + at : nullptr};
      tile_chunk(GatedPairs{gate, {is_there ? tokens.up + at : nullptr}, tokens.spec}, from, to, block);
    } else {
      const float* row = nullptr;
      if (is_there) row = batch.x.data + batch.groups.uses[first + i] / batch.top_k * batch.x.stride;
      tile_chunk(PlainPairs{row}, from, to, block);
    }
  }
}

unsigned chunks_of(int units) { return static_cast<unsigned>((units + kChunkUnits - 1) / kChunkUnits); }

}  // namespace

cudaError_t tile_expert_groups(const ExpertBatch& batch, Packing packing, const GroupedTokens& tokens,
                               const TiledInput& to, cudaStream_t stream) {
  const int units = (batch.cols + kUnitCols - 1) / kUnitCols;
  const GroupRows from = {0, batch.cols, units, group_shape(packing)};
  return launch_dependent(tile_expert_groups_kernel, dim3(static_cast<unsigned>(tokens.most_tiles), chunks_of(units)),
                          kThreads, 0, stream, batch, tokens, from, to);
}

cudaError_t tile_group_input(const InputView& x, std::int64_t rows, const WeightRef& weight, const TiledInput& to,
                             cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>((rows + kBlockTokens - 1) / kBlockTokens), chunks_of(weight.units));
  const GroupRows from = {static_cast<int>(rows), weight.cols, weight.units, group_shape(weight.packing)};
  return launch_dependent(tile_group_kernel, grid, kThreads, 0, stream, x, from, to);
}

}  // namespace vernier::cuda
