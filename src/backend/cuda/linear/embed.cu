// Embedding lookup in tables of every format.
#include "backend/cuda/fragment/decode_unit.cuh"
#include "backend/cuda/linear/embed.h"

namespace vernier::cuda {
namespace {

constexpr int kThreads = 128;

/// A block a token; a thread decodes units straight into its part of the row.
__global__ void __launch_bounds__(kThreads)
    embed_kernel(const __grid_constant__ WeightRef table, const __grid_constant__ EmbedTarget target) {
  const int row = target.tokens[blockIdx.x];
  float* out = target.x + blockIdx.x * target.stride;
  const int unit = table.unit_values;
  for (int begin = static_cast<int>(threadIdx.x) * unit; begin < table.cols; begin += kThreads * unit) {
    const int count = min(unit, table.cols - begin);
    decode_unit(table, row, begin, count, out + begin);
    for (int k = begin; k < begin + count; ++k) {
      const float value = table.has_grid ? __fmul_rn(out[k], grid_scale(table, row, k)) : out[k];
      out[k] = __fmul_rn(apply_outer(table, row, value), target.multiplier);
    }
  }
}

}  // namespace

cudaError_t embed_rows(const WeightRef& table, const EmbedTarget& target, cudaStream_t stream) {
  embed_kernel<<<static_cast<unsigned>(target.count), kThreads, 0, stream>>>(table, target);
  return cudaGetLastError();
}

}  // namespace vernier::cuda
