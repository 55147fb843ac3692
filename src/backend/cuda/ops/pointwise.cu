// Operations that treat each number, or each number with its partner, alone. They move bytes and little else.
#include "backend/cuda/ops/launch.h"
#include "backend/cuda/ops/math.cuh"
#include "backend/cuda/ops/ops.h"

namespace vernier::cuda {
namespace {

constexpr int kThreads = 256;

/// Calls body(row, column) for all elements of a [rows, cols] matrix; a grid-stride loop over rows in y.
template <class Body>
__device__ void for_each_element(std::int64_t rows, std::int64_t cols, const Body& body) {
  const std::int64_t col = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (col >= cols) return;
  for (std::int64_t row = blockIdx.y; row < rows; row += gridDim.y) body(row, col);
}

LaunchShape shape_of(const MatrixView& m) {
  constexpr std::int64_t kMaxGridRows = 32768;
  return {dim3(static_cast<unsigned>((m.cols + kThreads - 1) / kThreads),
               static_cast<unsigned>(m.rows < kMaxGridRows ? m.rows : kMaxGridRows)),
          dim3(kThreads)};
}

__global__ void gated_activation_kernel(ActivationSpec spec, MatrixView gate, MatrixView up, MatrixView y) {
  release_successor();
  wait_for_predecessor();
  for_each_element(y.rows, y.cols, [&](std::int64_t r, std::int64_t c) {
    y.data[r * y.stride + c] = activate(spec, gate.data[r * gate.stride + c], up.data[r * up.stride + c]);
  });
}

/// alpha * x + beta * y. Beta 0 overwrites: y may hold anything.
struct Combination {
  float alpha;
  float beta;

  __device__ float operator()(float x, float y) const {
    const float scaled = alpha * x;
    return beta == 0.0F ? scaled : scaled + beta * y;
  }
};

struct SigmoidGate {
  __device__ float operator()(float gate, float y) const { return y * sigmoid(gate); }
};

/// y = op(x, y); an x of one column is a row's number.
template <class Op>
__global__ void binary_kernel(MatrixView x, MatrixView y, Op op) {
  release_successor();
  wait_for_predecessor();
  for_each_element(y.rows, y.cols, [&](std::int64_t r, std::int64_t c) {
    float& out = y.data[r * y.stride + c];
    out = op(x.data[r * x.stride + (x.cols == 1 ? 0 : c)], out);
  });
}

constexpr int kFours = 2;  ///< that a thread asks for before it needs one

/// The same by four columns at a time, rows one behind the other.
template <class Op>
__global__ void __launch_bounds__(kThreads) binary_fours_kernel(MatrixView x, MatrixView y, Op op) {
  release_successor();
  wait_for_predecessor();
  const auto cols = static_cast<std::uint32_t>(y.cols / 4);
  const auto count = static_cast<std::uint32_t>(y.rows) * cols;
  const std::uint32_t first = blockIdx.x * (kThreads * kFours) + threadIdx.x;
  float4 from[kFours];
  float4 old[kFours];
  float* to[kFours];
#pragma unroll
  for (int i = 0; i < kFours; ++i) {
    const std::uint32_t at = first + static_cast<std::uint32_t>(i) * kThreads;
    if (at >= count) continue;
    const std::uint32_t row = at / cols;
    const std::uint32_t col = (at - row * cols) * 4;
    to[i] = y.data + row * y.stride + col;
    old[i] = *reinterpret_cast<const float4*>(to[i]);
    const float* const x_row = x.data + row * x.stride;
    from[i] = x.cols == 1 ? make_float4(*x_row, *x_row, *x_row, *x_row) : *reinterpret_cast<const float4*>(x_row + col);
  }
#pragma unroll
  for (int i = 0; i < kFours; ++i) {
    if (first + static_cast<std::uint32_t>(i) * kThreads >= count) continue;
    *reinterpret_cast<float4*>(to[i]) =
        make_float4(op(from[i].x, old[i].x), op(from[i].y, old[i].y), op(from[i].z, old[i].z), op(from[i].w, old[i].w));
  }
}

bool has_fours(const MatrixView& m) {
  return m.stride % 4 == 0 && m.cols % 4 == 0 && reinterpret_cast<std::uintptr_t>(m.data) % sizeof(float4) == 0;
}

template <class Op>
Status binary(const CudaContext& context, const MatrixView& x, const MatrixView& y, Op op) {
  constexpr std::int64_t kMostFours = std::int64_t{1} << 30U;
  const std::int64_t fours = y.rows * y.cols / 4;
  if (!has_fours(y) || !(x.cols == 1 || has_fours(x)) || fours > kMostFours) {
    return launch(context, shape_of(y), binary_kernel<Op>, x, y, op);
  }
  constexpr std::int64_t kBlockFours = kThreads * kFours;
  const dim3 grid(static_cast<unsigned>((fours + kBlockFours - 1) / kBlockFours));
  return launch(context, {grid, dim3(kThreads)}, binary_fours_kernel<Op>, x, y, op);
}

__global__ void soft_cap_kernel(MatrixView y, float cap) {
  release_successor();
  wait_for_predecessor();
  for_each_element(y.rows, y.cols, [&](std::int64_t r, std::int64_t c) {
    float& out = y.data[r * y.stride + c];
    // In double: tanhf is off by up to two units in the last place, which a cap of 30 makes visible in logits.
    const double limit = cap;
    out = static_cast<float>(limit * tanh(out / limit));
  });
}

}  // namespace

Status gated_activation(CudaContext& context, const GatedActivationArgs& args) {
  return launch(context, shape_of(args.y), gated_activation_kernel, args.spec, args.gate, args.up, args.y);
}

Status combine(CudaContext& context, const CombineArgs& args) {
  return binary(context, args.x, args.y, Combination{args.alpha, args.beta});
}

Status soft_cap(CudaContext& context, const SoftCapArgs& args) {
  return launch(context, shape_of(args.y), soft_cap_kernel, args.y, args.cap);
}

Status sigmoid_gate(CudaContext& context, const SigmoidGateArgs& args) {
  return binary(context, args.gate, args.y, SigmoidGate{});
}

}  // namespace vernier::cuda
