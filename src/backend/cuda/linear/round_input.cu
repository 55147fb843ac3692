// Input rows as bf16 terms, once for all blocks of a product.
#include "backend/cuda/fragment/mma.cuh"
#include "backend/cuda/linear/product.h"
#include "backend/cuda/predecessor.cuh"

namespace vernier::cuda {
namespace {

constexpr int kThreads = 256;

struct RoundTarget {
  std::uint16_t* data;
  std::int64_t stride;
  int cols;
};

/// A block a row and 2 * kThreads columns.
__global__ void __launch_bounds__(kThreads)
    round_input_kernel(const __grid_constant__ InputView x, const __grid_constant__ RoundTarget to) {
  release_successor();
  wait_for_predecessor();
  const int col = 2 * (static_cast<int>(blockIdx.y) * kThreads + static_cast<int>(threadIdx.x));
  if (col >= to.stride) return;
  const std::int64_t row = blockIdx.x;
  const float* from = x.data + row * x.stride;
  const float low = col < to.cols ? from[col] : 0.0F;
  const float high = col + 1 < to.cols ? from[col + 1] : 0.0F;
  auto* out = reinterpret_cast<std::uint32_t*>(to.data + row * x.terms * to.stride + col);
  if (x.terms == 1) {
    *out = round_pair(low, high);
    return;
  }
  const Bf16Terms a = split_terms(low);
  const Bf16Terms b = split_terms(high);
  for (int term = 0; term < 3; ++term) out[term * to.stride / 2] = pack_upper_halves(a.term[term], b.term[term]);
}

}  // namespace

cudaError_t round_input(const InputView& x, std::int64_t rows, std::int64_t cols, std::uint16_t* to,
                        std::int64_t stride, cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>(rows), static_cast<unsigned>((stride / 2 + kThreads - 1) / kThreads));
  return launch_dependent(round_input_kernel, grid, kThreads, 0, stream, x,
                          RoundTarget{to, stride, static_cast<int>(cols)});
}

}  // namespace vernier::cuda
