// Embedding lookup in tables of every format.
#include "backend/cuda/fragment/decode_unit.cuh"
#include "backend/cuda/linear/embed.h"
#include "backend/cuda/predecessor.cuh"

namespace vernier::cuda {
namespace {

constexpr int kThreads = 64;

/// Values that a thread decodes at a time: of packed tables any, else a unit.
__host__ __device__ int values_at_once(const WeightRef& table) {
  return table.packing != Packing::kNone ? 1 : table.unit_values;
}

/// Blocks: a token, and as many columns as the threads take. A thread decodes straight into its part of the row.
__global__ void __launch_bounds__(kThreads)
    embed_kernel(const __grid_constant__ WeightRef table, const __grid_constant__ EmbedTarget target) {
  release_successor();
  wait_for_predecessor();
  const int row = target.tokens[blockIdx.x];
  float* out = target.x + blockIdx.x * target.stride;
  const int unit = values_at_once(table);
  const int begin = static_cast<int>(blockIdx.y * kThreads + threadIdx.x) * unit;
  if (begin >= table.cols) return;
  const int count = min(unit, table.cols - begin);
  decode_unit(table, row, begin, count, out + begin);
  for (int k = begin; k < begin + count; ++k) {
    const float value = table.has_grid ? __fmul_rn(out[k], grid_scale(table, row, k)) : out[k];
    out[k] = __fmul_rn(apply_outer(table, row, value), target.multiplier);
  }
}

}  // namespace

cudaError_t embed_rows(const WeightRef& table, const EmbedTarget& target, cudaStream_t stream) {
  const int columns = kThreads * values_at_once(table);
  const dim3 grid(static_cast<unsigned>(target.count), static_cast<unsigned>((table.cols + columns - 1) / columns));
  return launch_dependent(embed_kernel, grid, kThreads, 0, stream, table, target);
}

}  // namespace vernier::cuda
