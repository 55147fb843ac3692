// The gated delta net: which kernels a step takes, their working memory, and the gated norm of a prompt's outputs.
#include "backend/cuda/ops/delta_net_kernels.h"
#include "backend/cuda/ops/delta_net_math.cuh"

namespace vernier::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kWarps = kThreads / kWarpSize;
constexpr int kHeld = 4;   ///< numbers of a head that a lane of the norm keeps
constexpr int kHeads = 4;  ///< heads whose numbers a warp of the norm asks for at once

/// A row's heads from `first` on, kHeads of them, of at most kHeld * kWarpSize numbers each.
struct HeadNumbers {
  float o[kHeads][kHeld];
  float z[kHeads][kHeld];

  __device__ void load(const DeltaNetKernelArgs& args, std::int64_t row, std::int32_t first, int lane) {
    const float* const outputs = args.outputs + row * args.value_heads * args.value_dim;
    const float* const gates = args.z.data + row * args.z.stride;
#pragma unroll
    for (int h = 0; h < kHeads; ++h) {
#pragma unroll
      for (int i = 0; i < kHeld; ++i) {
        const int d = lane + i * kWarpSize;
        const bool is_there = first + h < args.value_heads && d < args.value_dim;
        const std::int32_t at = (first + h) * args.value_dim + d;
        o[h][i] = is_there ? outputs[at] : 0.0F;
        z[h][i] = is_there ? gates[at] : 0.0F;
      }
    }
  }
  /// norm_factor() of each head.
  __device__ void factors(const DeltaNetKernelArgs& args, float (&result)[kHeads]) const {
#pragma unroll
    for (int h = 0; h < kHeads; ++h) {
      float squares = 0.0F;
#pragma unroll
      for (int i = 0; i < kHeld; ++i) squares = __fmaf_rn(o[h][i], o[h][i], squares);
      result[h] = norm_factor_of(squares, args.value_dim, args.eps);
    }
  }
};

/// A warp kHeads value heads of a row.
__global__ void __launch_bounds__(kThreads) gated_norm_kernel(const __grid_constant__ DeltaNetKernelArgs args) {
  release_successor();
  wait_for_predecessor();
  const std::int64_t row = blockIdx.x;
  const auto first = static_cast<std::int32_t>(blockIdx.y * kWarps + threadIdx.x / kWarpSize) * kHeads;
  const std::int32_t slice = args.step.slice_of_row[row];
  if (slice < 0 || first >= args.value_heads || !args.is_scanned(args.step.slices[slice].num_tokens)) return;
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  float* const y = args.y.data + row * args.y.stride;
  if (args.value_dim > kHeld * kWarpSize) {
    const std::int32_t end = min(first + kHeads, args.value_heads);
    for (std::int32_t head = first; head < end; ++head) {
      const std::int64_t at = std::int64_t{head} * args.value_dim;
      const float* const o = args.outputs + row * args.value_heads * args.value_dim + at;
      const float* const z = args.z.data + row * args.z.stride + at;
      const float factor = norm_factor(o, args.value_dim, args.eps);
      for (int d = lane; d < args.value_dim; d += kWarpSize) y[at + d] = gated_output(args.norm[d], o[d], factor, z[d]);
    }
    return;
  }
  HeadNumbers numbers;
  numbers.load(args, row, first, lane);
  float factors[kHeads];
  numbers.factors(args, factors);
#pragma unroll
  for (int i = 0; i < kHeld; ++i) {
    const int d = lane + i * kWarpSize;
    if (d >= args.value_dim) continue;
    const float weight = args.norm[d];
#pragma unroll
    for (int h = 0; h < kHeads; ++h) {
      if (first + h >= args.value_heads) continue;
      y[(first + h) * args.value_dim + d] = gated_output(weight, numbers.o[h][i], factors[h], numbers.z[h][i]);
    }
  }
}

constexpr std::int32_t round_up(std::int32_t value, std::int32_t to) { return (value + to - 1) / to * to; }

/// What the caller says; the working memory is still missing.
DeltaNetKernelArgs kernel_args_of(const GatedDeltaNetArgs& args, const StepView& step) {
  DeltaNetKernelArgs result = {};
  result.qkv = args.qkv;
  result.z = args.z;
  result.a = args.a;
  result.b = args.b;
  result.y = args.y;
  result.key_heads = args.key_heads;
  result.value_heads = args.value_heads;
  result.key_dim = args.key_dim;
  result.value_dim = args.value_dim;
  result.conv_width = args.conv_width;
  result.channels = static_cast<std::int32_t>(args.channels());
  result.padded_keys = round_up(args.key_dim, kKeyStride);
  result.padded_values = round_up(args.value_dim, 4);
  result.tiled_heads = args.tiled_heads;
  result.convolution_weight = args.convolution_weight.data();
  result.decay_rate = args.decay_rate.data();
  result.dt_bias = args.dt_bias.data();
  result.norm = args.norm.data();
  result.eps = args.eps;
  result.step = step;
  result.recurrent = args.recurrent;
  result.convolution = args.convolution;
  return result;
}

Result<DeltaNetKernelArgs> make_kernel_args(CudaContext& context, const GatedDeltaNetArgs& args) {
  VN_ASSIGN(const StepView step, context.tables.step(args.slices, args.qkv.rows));
  DeltaNetKernelArgs result = kernel_args_of(args, step);
  const std::int64_t rows = args.qkv.rows;
  const std::int64_t keys = rows * args.key_heads * 2 * result.padded_keys;
  const std::int64_t values = rows * args.value_heads * result.padded_values;
  const auto bytes = [](std::int64_t floats) { return static_cast<std::size_t>(floats) * sizeof(float); };
  VN_ASSIGN(void* mixed, context.scratch.get(ScratchSlot::kDeltaNetMixed, bytes(keys + values)));
  VN_ASSIGN(void* outputs, context.scratch.get(ScratchSlot::kDeltaNetOutput, bytes(rows * args.value_width())));
  VN_ASSIGN(void* gates, context.scratch.get(ScratchSlot::kDeltaNetGates,
                                             static_cast<std::size_t>(rows) *
                                                 static_cast<std::size_t>(args.value_heads) * sizeof(DeltaNetGates)));
  result.keys = static_cast<float*>(mixed);
  result.values = result.keys + keys;
  result.outputs = static_cast<float*>(outputs);
  result.gates = static_cast<DeltaNetGates*>(gates);
  return result;
}

}  // namespace

Status run_delta_net_norm(const CudaContext& context, const DeltaNetKernelArgs& args) {
  constexpr int kBlockHeads = kWarps * kHeads;
  const auto head_blocks = static_cast<unsigned>((args.value_heads + kBlockHeads - 1) / kBlockHeads);
  return launch(context, {dim3(static_cast<unsigned>(args.qkv.rows), head_blocks), dim3(kThreads)}, gated_norm_kernel,
                args);
}

Status gated_delta_net(CudaContext& context, const GatedDeltaNetArgs& args) {
  if (args.conv_width > kMaxConvWidth || args.key_dim > kMaxKeyDim) {
    return fail(ErrorCode::kUnsupported, "cuda: gated_delta_net: convolutions of {} and keys of {}; at most {} and {}",
                args.conv_width, args.key_dim, kMaxConvWidth, kMaxKeyDim);
  }
  std::int32_t num_single = 0;
  std::int32_t num_longer = 0;
  for (const SequenceSlice& slice : args.slices) {
    num_single += slice.num_tokens == 1 ? 1 : 0;
    num_longer += slice.num_tokens > 1 ? 1 : 0;
  }
  if (num_single + num_longer == 0) return {};
  VN_ASSIGN(DeltaNetKernelArgs kernel_args, make_kernel_args(context, args));
  kernel_args.has_steps = num_single > 0 && delta_net_step_fits(kernel_args);
  kernel_args.num_scanned = num_longer + (kernel_args.has_steps ? 0 : num_single);
  VN_TRY(run_delta_net_mix(context, kernel_args));
  if (kernel_args.num_scanned > 0) VN_TRY(run_delta_net_scan(context, kernel_args));
  if (kernel_args.has_steps) VN_TRY(run_delta_net_step(context, kernel_args));
  return kernel_args.num_scanned > 0 ? run_delta_net_norm(context, kernel_args) : Status{};
}

}  // namespace vernier::cuda
