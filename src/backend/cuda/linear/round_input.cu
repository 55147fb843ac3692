// Input rows as bf16 terms, once for all blocks of a product.
#include "backend/cuda/fragment/group_stage.cuh"
#include "backend/cuda/linear/narrow_input.cuh"
#include "backend/cuda/linear/narrow_ring.h"
#include "backend/cuda/linear/product.h"
#include "backend/cuda/predecessor.cuh"

namespace vernier::cuda {
namespace {

constexpr int kThreads = 256;

struct RoundTarget {
  std::uint16_t* data;
  std::int64_t stride;
  int cols;
  int padded;
  GroupShape shape;
  std::int64_t chunk_stride = kChunkCols;  ///< of a row
};

/// Four columns of a term; with the sum of their group where minimums want it. All lanes of half a warp.
__device__ __forceinline__ void put_columns(const RoundTarget& to, std::uint16_t* row, int col, const uint2& words) {
  if (col < to.padded) *reinterpret_cast<uint2*>(row + col / kChunkCols * to.chunk_stride + col % kChunkCols) = words;
  if (!to.shape.has_minimum) return;
  const float own = __fadd_rn(add_halves(words.x), add_halves(words.y));
  const float sum = sum_group<4>(own, to.shape.group_cols(), lanes_of_unit());
  if (col % to.shape.group_cols() == 0) store_sum(to.shape, row + to.padded, col, sum);
}

/// A block a row and 4 * kThreads columns.
__global__ void __launch_bounds__(kThreads)
    round_input_kernel(const __grid_constant__ InputView x, const __grid_constant__ RoundTarget to) {
  release_successor();
  wait_for_predecessor();
  const int col = 4 * (static_cast<int>(blockIdx.y) * kThreads + static_cast<int>(threadIdx.x));
  if (col >= columns_with_sums(to.shape, to.padded)) return;  // all lanes of a unit
  const std::int64_t row = blockIdx.x;
  const float* from = x.data + row * x.stride;
  const bool whole = reinterpret_cast<std::uintptr_t>(from) % sizeof(float4) == 0 && col + 4 <= to.cols;
  const float4 v = whole ? *reinterpret_cast<const float4*>(from + col) : load_columns(from, col, to.cols);
  std::uint16_t* const out = to.data + row * x.terms * to.stride;
  if (x.terms == 1) return put_columns(to, out, col, make_uint2(round_pair(v.x, v.y), round_pair(v.z, v.w)));
  const Bf16Terms split[4] = {split_terms(v.x), split_terms(v.y), split_terms(v.z), split_terms(v.w)};
#pragma unroll
  for (int term = 0; term < 3; ++term) {
    put_columns(to, out + term * to.stride, col,
                make_uint2(pack_upper_halves(split[0].term[term], split[1].term[term]),
                           pack_upper_halves(split[2].term[term], split[3].term[term])));
  }
}

cudaError_t launch(const InputView& x, std::int64_t rows, const RoundTarget& target, cudaStream_t stream) {
  const int threads = columns_with_sums(target.shape, target.padded) / 4;
  const dim3 grid(static_cast<unsigned>(rows), static_cast<unsigned>((threads + kThreads - 1) / kThreads));
  return launch_dependent(round_input_kernel, grid, kThreads, 0, stream, x, target);
}

}  // namespace

cudaError_t round_input(const InputView& x, std::int64_t rows, std::int64_t cols, const RoundedRows& to,
                        cudaStream_t stream) {
  const std::int64_t units = (cols + kUnitCols - 1) / kUnitCols;
  const RoundTarget target = {.data = to.data,
                              .stride = input_stride(to.packing, units),
                              .cols = static_cast<int>(cols),
                              .padded = static_cast<int>(units * kUnitCols),
                              .shape = group_shape(to.packing)};
  return launch(x, rows, target, stream);
}

cudaError_t round_chunks(const InputView& x, std::int64_t rows, std::int64_t cols, std::uint16_t* to,
                         cudaStream_t stream) {
  const RoundTarget target = {.data = to,
                              .stride = kRingStride,
                              .cols = static_cast<int>(cols),
                              .padded = static_cast<int>((cols + kUnitCols - 1) / kUnitCols * kUnitCols),
                              .shape = {},
                              .chunk_stride = rows * x.terms * kRingStride};
  return launch(x, rows, target, stream);
}

}  // namespace vernier::cuda
