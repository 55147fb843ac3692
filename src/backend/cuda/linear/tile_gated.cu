#include "backend/cuda/experts/gate_all.cuh"
#include "backend/cuda/fragment/mma.cuh"
#include "backend/cuda/linear/tile_gated.h"
#include "backend/cuda/predecessor.cuh"

namespace vernier::cuda {
namespace {

constexpr int kThreads = 256;

struct GatedRows {
  MatrixView gate;
  MatrixView up;
  ActivationSpec spec;
  bool in_pairs;  ///< columns lie so that two may be loaded at once
};

__device__ __forceinline__ float2 load_pair(const float* row, int col, const GatedRows& rows) {
  if (rows.in_pairs && col + 1 < rows.gate.cols) return *reinterpret_cast<const float2*>(row + col);
  return {col < rows.gate.cols ? row[col] : 0.0F, col + 1 < rows.gate.cols ? row[col + 1] : 0.0F};
}

/// A block makes a tile; eight threads a row, each a piece of 16 bytes.
__global__ void __launch_bounds__(kThreads)
    tile_gated_kernel(const __grid_constant__ GatedRows rows, const __grid_constant__ TiledInput to) {
  release_successor();
  wait_for_predecessor();
  const int row = static_cast<int>(threadIdx.x) / 8;
  const int piece = static_cast<int>(threadIdx.x) % 8;
  const int col = piece / 2 * 4 + piece % 2 * 2;
  const std::int64_t token = std::int64_t{blockIdx.y} * kBlockTokens + row;
  const auto unit = static_cast<int>(blockIdx.x);
  float gate[8] = {};
  float up[8] = {};
  if (token < rows.gate.rows) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int at = unit * kUnitCols + col + 16 * i;
      const float2 first = load_pair(rows.gate.data + token * rows.gate.stride, at, rows);
      const float2 second = load_pair(rows.up.data + token * rows.up.stride, at, rows);
      gate[2 * i] = first.x;
      gate[2 * i + 1] = first.y;
      up[2 * i] = second.x;
      up[2 * i + 1] = second.y;
    }
  }
  gate_all(rows.spec, gate, up);
  *reinterpret_cast<uint4*>(to.tile(blockIdx.y, unit) + tiled_offset(row, col)) = {
      round_pair(gate[0], gate[1]), round_pair(gate[2], gate[3]), round_pair(gate[4], gate[5]),
      round_pair(gate[6], gate[7])};
}

bool has_pairs(const MatrixView& x) {
  return x.stride % 2 == 0 && reinterpret_cast<std::uintptr_t>(x.data) % sizeof(float2) == 0;
}

}  // namespace

cudaError_t tile_gated(const MatrixView& gate, const MatrixView& up, const ActivationSpec& spec, const TiledInput& to,
                       cudaStream_t stream) {
  const GatedRows rows = {gate, up, spec, has_pairs(gate) && has_pairs(up)};
  const dim3 grid(static_cast<unsigned>(to.units),
                  static_cast<unsigned>((gate.rows + kBlockTokens - 1) / kBlockTokens));
  return launch_dependent(tile_gated_kernel, grid, kThreads, 0, stream, rows, to);
}

}  // namespace vernier::cuda
