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

__global__ void combine_kernel(MatrixView x, MatrixView y, float alpha, float beta) {
  release_successor();
  wait_for_predecessor();
  for_each_element(y.rows, y.cols, [&](std::int64_t r, std::int64_t c) {
    float& out = y.data[r * y.stride + c];
    const float scaled = alpha * x.data[r * x.stride + c];
    out = beta == 0.0F ? scaled : scaled + beta * out;  // beta 0 overwrites: y may hold anything
  });
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

__global__ void sigmoid_gate_kernel(MatrixView gate, MatrixView y) {
  release_successor();
  wait_for_predecessor();
  for_each_element(y.rows, y.cols, [&](std::int64_t r, std::int64_t c) {
    y.data[r * y.stride + c] *= sigmoid(gate.data[r * gate.stride + (gate.cols == 1 ? 0 : c)]);
  });
}

}  // namespace

Status gated_activation(CudaContext& context, const GatedActivationArgs& args) {
  return launch(context, shape_of(args.y), gated_activation_kernel, args.spec, args.gate, args.up, args.y);
}

Status combine(CudaContext& context, const CombineArgs& args) {
  return launch(context, shape_of(args.y), combine_kernel, args.x, args.y, args.alpha, args.beta);
}

Status soft_cap(CudaContext& context, const SoftCapArgs& args) {
  return launch(context, shape_of(args.y), soft_cap_kernel, args.y, args.cap);
}

Status sigmoid_gate(CudaContext& context, const SigmoidGateArgs& args) {
  return launch(context, shape_of(args.y), sigmoid_gate_kernel, args.gate, args.y);
}

}  // namespace vernier::cuda
