// The gated delta net: convolution, norms and gates token by token in parallel, then the recurrence with the state in
// registers, then the gated norm of its output. Steps of single tokens do it in two launches, by the same arithmetic.
#include "backend/cuda/ops/launch.h"
#include "backend/cuda/ops/math.cuh"
#include "backend/cuda/ops/ops.h"
#include "backend/cuda/ops/prefetch.cuh"

namespace vernier::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kWarps = kThreads / kWarpSize;
constexpr int kMaxConvWidth = 16;
constexpr int kConvTokens = 32;     ///< tokens that a thread of the convolution takes
constexpr int kLanesPerColumn = 8;  ///< lanes that share the keys of a state column
constexpr int kMaxKeyDim = 256;
constexpr int kMostStepKeys = 128;  ///< key dimensions of the kernels for single tokens
constexpr int kMostNormed = 128;    ///< value dimensions of a block that norms its head's output

/// What the kernels share. `u` is the convolved qkv [rows, channels], densely packed; of its q and k the norms are
/// taken in place.
struct DeltaNetKernelArgs {
  MatrixView qkv;
  MatrixView z;
  MatrixView a;
  MatrixView b;
  MatrixView y;
  std::int32_t key_heads;
  std::int32_t value_heads;
  std::int32_t key_dim;
  std::int32_t value_dim;
  std::int32_t conv_width;
  std::int32_t channels;
  bool tiled_heads;
  const float* convolution_weight;
  const float* decay_rate;
  const float* dt_bias;
  const float* norm;
  float eps;
  StepView step;
  float* recurrent;
  float* convolution;
  float* u;      ///< [rows, channels]
  float* o;      ///< [rows, value_heads * value_dim]: the recurrence's outputs before the norm
  float* gates;  ///< [rows, 2 * value_heads + key_heads]: decay and beta of value heads, then k.q of key heads
};

__device__ float* state_of(const DeltaNetKernelArgs& args, std::int32_t slot, std::int32_t channel) {
  return args.convolution + std::int64_t{slot} * (args.conv_width - 1) * args.channels + channel;
}

/// The input of `channel` at token t of a slice; before the slice it lies in the slot's state.
__device__ float input_at(const DeltaNetKernelArgs& args, const DeviceSlice& slice, std::int32_t t,
                          std::int32_t channel) {
  if (t >= 0) return args.qkv.data[(std::int64_t{slice.first_row} + t) * args.qkv.stride + channel];
  return state_of(args, slice.state_slot, channel)[std::int64_t{args.conv_width - 1 + t} * args.channels];
}

__global__ void __launch_bounds__(kThreads) convolve_kernel(const __grid_constant__ DeltaNetKernelArgs args) {
  release_successor();
  wait_for_predecessor();
  const DeviceSlice slice = args.step.slices[blockIdx.z];
  const std::int32_t begin = static_cast<std::int32_t>(blockIdx.y) * kConvTokens;
  const auto channel = static_cast<std::int32_t>(blockIdx.x * kThreads + threadIdx.x);
  if (begin >= slice.num_tokens || channel >= args.channels) return;
  const std::int32_t end = min(begin + kConvTokens, slice.num_tokens);
  const float* const weight = args.convolution_weight + std::int64_t{channel} * args.conv_width;
  for (std::int32_t t = begin; t < end; ++t) {
    float sum = 0.0F;
    for (std::int32_t j = 0; j < args.conv_width; ++j) {
      sum = __fmaf_rn(weight[j], input_at(args, slice, t - args.conv_width + 1 + j, channel), sum);
    }
    args.u[(std::int64_t{slice.first_row} + t) * args.channels + channel] = silu(sum);
  }
}

/// Leaves the last conv_width - 1 inputs in the slot.
__global__ void __launch_bounds__(kThreads) keep_inputs_kernel(const __grid_constant__ DeltaNetKernelArgs args) {
  release_successor();
  wait_for_predecessor();
  const DeviceSlice slice = args.step.slices[blockIdx.y];
  const auto channel = static_cast<std::int32_t>(blockIdx.x * kThreads + threadIdx.x);
  if (slice.num_tokens == 0 || channel >= args.channels) return;
  float kept[kMaxConvWidth - 1];
#pragma unroll
  for (int j = 0; j < kMaxConvWidth - 1; ++j) {
    if (j < args.conv_width - 1) kept[j] = input_at(args, slice, slice.num_tokens - args.conv_width + 1 + j, channel);
  }
  float* const state = state_of(args, slice.state_slot, channel);
#pragma unroll
  for (int j = 0; j < kMaxConvWidth - 1; ++j) {
    if (j < args.conv_width - 1) state[std::int64_t{j} * args.channels] = kept[j];
  }
}

__device__ float softplus(float x) { return x > 20.0F ? x : log1pf(expf(x)); }

/// Factors that norm q and k, and the product of the normed two. A warp computes them, the same in all lanes.
struct KeyNorms {
  float q_factor;
  float k_factor;
  float product;
};
__device__ KeyNorms norm_keys(const float* q, const float* k, std::int32_t dim) {
  float q_squares = 0.0F;
  float k_squares = 0.0F;
  float product = 0.0F;
#pragma unroll 4
  for (std::int32_t d = static_cast<std::int32_t>(threadIdx.x) % kWarpSize; d < dim; d += kWarpSize) {
    q_squares = __fmaf_rn(q[d], q[d], q_squares);
    k_squares = __fmaf_rn(k[d], k[d], k_squares);
    product = __fmaf_rn(q[d], k[d], product);
  }
  const float q_factor = 1.0F / sqrtf((warp_sum(q_squares) + 1e-6F) * static_cast<float>(dim));
  const float k_factor = 1.0F / sqrtf(warp_sum(k_squares) + 1e-6F);
  return {q_factor, k_factor, warp_sum(product) * q_factor * k_factor};
}

/// Decay and beta of the value heads of a row, a thread each.
__device__ void prepare_gates(const DeltaNetKernelArgs& args, std::int64_t row) {
  float* const gates = args.gates + row * (2 * args.value_heads + args.key_heads);
  for (std::int32_t h = static_cast<std::int32_t>(threadIdx.x); h < args.value_heads; h += kThreads) {
    const float raised = args.a.data[row * args.a.stride + h] + args.dt_bias[h];
    gates[h] = expf(args.decay_rate[h] * softplus(raised));
    gates[args.value_heads + h] = sigmoid(args.b.data[row * args.b.stride + h]);
  }
}

/// Norms of q and k and their product, a warp a key head; decay and beta, a thread a value head.
__global__ void __launch_bounds__(kThreads) prepare_kernel(const __grid_constant__ DeltaNetKernelArgs args) {
  release_successor();
  wait_for_predecessor();
  const std::int64_t row = blockIdx.x;
  if (args.step.slice_of_row[row] < 0) return;
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  float* const gates = args.gates + row * (2 * args.value_heads + args.key_heads);
  const std::int32_t dim = args.key_dim;
  for (std::int32_t h = warp; h < args.key_heads; h += kWarps) {
    float* const q = args.u + row * args.channels + std::int64_t{h} * dim;
    float* const k = q + std::int64_t{args.key_heads} * dim;
    const KeyNorms norms = norm_keys(q, k, dim);
    for (std::int32_t d = lane; d < dim; d += kWarpSize) {
      q[d] *= norms.q_factor;
      k[d] *= norms.k_factor;
    }
    if (lane == 0) gates[2 * args.value_heads + h] = norms.product;
  }
  prepare_gates(args, row);
}

/// A channel's convolution for the one token of a slice, whose input takes the oldest one's place.
struct ChannelStep {
  float weight[kMaxConvWidth];

  /// Before the wait: weights, which no kernel writes.
  __device__ void prepare(const DeltaNetKernelArgs& args, const DeviceSlice& slice, std::int32_t channel) {
    const float* const weights = args.convolution_weight + std::int64_t{channel} * args.conv_width;
    const float* const state = state_of(args, slice.state_slot, channel);
#pragma unroll
    for (int j = 0; j < kMaxConvWidth; ++j) {
      if (j < args.conv_width) weight[j] = weights[j];
      if (j < args.conv_width - 1) prefetch_line(state + std::int64_t{j} * args.channels);
    }
  }
  __device__ float run(const DeltaNetKernelArgs& args, const DeviceSlice& slice, std::int32_t channel) {
    float* const state = state_of(args, slice.state_slot, channel);
    float input[kMaxConvWidth];
#pragma unroll
    for (int j = 0; j < kMaxConvWidth; ++j) {
      if (j < args.conv_width) input[j] = input_at(args, slice, j + 1 - args.conv_width, channel);
    }
    float sum = 0.0F;
#pragma unroll
    for (int j = 0; j < kMaxConvWidth; ++j) {
      if (j >= args.conv_width) continue;
      sum = __fmaf_rn(weight[j], input[j], sum);
      if (j > 0) state[std::int64_t{j - 1} * args.channels] = input[j];
    }
    return silu(sum);
  }
};

/// convolve, keep_inputs and prepare in one for slices of one token: a block a key head (q and k), then blocks of
/// kThreads channels of v. Each sum is the one of prepare_kernel.
__global__ void __launch_bounds__(kThreads) mix_kernel(const __grid_constant__ DeltaNetKernelArgs args) {
  __shared__ float heads[2][kMaxKeyDim];
  release_successor();
  const DeviceSlice slice = args.step.slices[blockIdx.y];
  const bool has_token = slice.num_tokens > 0;
  const auto block = static_cast<std::int32_t>(blockIdx.x);
  const auto thread = static_cast<std::int32_t>(threadIdx.x);
  const std::int64_t row = slice.first_row;
  float* const u = args.u + row * args.channels;
  if (block >= args.key_heads) {
    const std::int32_t channel = 2 * args.key_heads * args.key_dim + (block - args.key_heads) * kThreads + thread;
    const bool is_inside = has_token && channel < args.channels;
    ChannelStep step;
    if (is_inside) step.prepare(args, slice, channel);
    wait_for_predecessor();
    if (is_inside) u[channel] = step.run(args, slice, channel);
    if (has_token && block == args.key_heads) prepare_gates(args, row);
    return;
  }
  constexpr int kTurns = kMaxKeyDim / kThreads;
  const std::int32_t dim = args.key_dim;
  const std::int32_t channels[2] = {block * dim, (args.key_heads + block) * dim};
  ChannelStep steps[2];  // the first turn's
  if (has_token && thread < dim) {
    for (int which = 0; which < 2; ++which) steps[which].prepare(args, slice, channels[which] + thread);
  }
  wait_for_predecessor();
  if (!has_token) return;
#pragma unroll
  for (int turn = 0; turn < kTurns; ++turn) {
    const std::int32_t d = thread + turn * kThreads;
    if (d >= dim) continue;
#pragma unroll
    for (int which = 0; which < 2; ++which) {
      if (turn > 0) steps[which].prepare(args, slice, channels[which] + d);
      heads[which][d] = steps[which].run(args, slice, channels[which] + d);
    }
  }
  __syncthreads();
  const KeyNorms norms = norm_keys(heads[0], heads[1], dim);
  for (std::int32_t d = thread; d < dim; d += kThreads) {
    u[channels[0] + d] = heads[0][d] * norms.q_factor;
    u[channels[1] + d] = heads[1][d] * norms.k_factor;
  }
  if (thread == 0) {
    args.gates[row * (2 * args.value_heads + args.key_heads) + 2 * args.value_heads + block] = norms.product;
  }
}

/// k and q of one token as a lane holds them: kRows key dimensions from lane_in_column * kRows on.
template <int kRows>
struct KeyQuery {
  float k[kRows];
  float q[kRows];
};

template <int kRows>
__device__ KeyQuery<kRows> load_key_query(const DeltaNetKernelArgs& args, std::int64_t row, std::int32_t key_head,
                                          int first) {
  KeyQuery<kRows> result;
  const float* const q = args.u + row * args.channels + std::int64_t{key_head} * args.key_dim;
  const float* const k = q + std::int64_t{args.key_heads} * args.key_dim;
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    const bool inside = first + r < args.key_dim;
    result.k[r] = inside ? k[first + r] : 0.0F;
    result.q[r] = inside ? q[first + r] : 0.0F;
  }
  return result;
}

/// The sum over the kLanesPerColumn neighbouring lanes that share a column.
__device__ float column_sum(float value) {
#pragma unroll
  for (int offset = kLanesPerColumn / 2; offset > 0; offset /= 2) value += __shfl_xor_sync(0xFFFFFFFFU, value, offset);
  return value;
}

/// y = norm * o * rsqrt(mean(o^2) + eps) * silu(z) of a value head: every `step`-th number from `first` on. Each warp
/// that takes part computes the mean.
__device__ void norm_output(const DeltaNetKernelArgs& args, std::int64_t row, std::int32_t head, const float* o,
                            int first, int step) {
  const std::int32_t dim = args.value_dim;
  const std::int64_t at = std::int64_t{head} * dim;
  float squares = 0.0F;
#pragma unroll 4
  for (std::int32_t d = static_cast<std::int32_t>(threadIdx.x) % kWarpSize; d < dim; d += kWarpSize) {
    squares = __fmaf_rn(o[d], o[d], squares);
  }
  const float factor = 1.0F / sqrtf(warp_sum(squares) / static_cast<float>(dim) + args.eps);
  for (std::int32_t d = first; d < dim; d += step) {
    args.y.data[row * args.y.stride + at + d] =
        args.norm[d] * o[d] * factor * silu(args.z.data[row * args.z.stride + at + d]);
  }
}

/// The recurrence. A block takes some columns of one value head's state [key_dim, value_dim] of one sequence and keeps
/// them in registers over all its tokens: eight lanes share kColumns columns, kRows keys each. With S the old state,
///   delta = beta (v - decay S^T k),  S' = decay S + k delta^T,  o = S'^T q = decay S^T q + (k.q) delta,
/// so that both products of a token use the old state and wait for nothing but each other's shuffles.
/// kNorms: of slices of one token a block has all columns and norms them too.
template <int kRows, int kColumns, bool kNorms>
__global__ void __launch_bounds__(kNorms ? 2 * kThreads : kThreads)
    recurrence_kernel(const __grid_constant__ DeltaNetKernelArgs args) {
  __shared__ float outputs[kNorms ? kMostNormed : 1];
  release_successor();
  const DeviceSlice slice = args.step.slices[blockIdx.z];
  const auto head = static_cast<std::int32_t>(blockIdx.y);
  const std::int32_t key_head = args.tiled_heads ? head % args.key_heads : head / (args.value_heads / args.key_heads);
  const int group = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x) / kLanesPerColumn;
  const int lane = static_cast<int>(threadIdx.x) % kLanesPerColumn;
  const int first_row = lane * kRows;
  const std::int32_t column = group * kColumns;
  // Lanes beyond the last column go along with the others' shuffles.
  const bool active = slice.num_tokens > 0 && column < args.value_dim;
  float* const state = args.recurrent +
                       (std::int64_t{slice.state_slot} * args.value_heads + head) * args.key_dim * args.value_dim +
                       (active ? column : 0);
  constexpr int kLineBytes = 128;
  constexpr int kLineColumns = kLineBytes / static_cast<int>(sizeof(float));
  if (active && column % kLineColumns == 0 && args.value_dim % kLineColumns == 0) {
#pragma unroll 1
    for (int r = first_row; r < min(first_row + kRows, args.key_dim); ++r) {
      prefetch_to_l2<kLineBytes>(state + std::int64_t{r} * args.value_dim);
    }
  }
  wait_for_predecessor();
  if (slice.num_tokens == 0) return;
  float s[kRows][kColumns];
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      s[r][c] = active && first_row + r < args.key_dim ? state[std::int64_t{first_row + r} * args.value_dim + c] : 0.0F;
    }
  }
  const std::int64_t value_width = std::int64_t{args.value_heads} * args.value_dim;
  const std::int64_t v_at =
      2 * std::int64_t{args.key_heads} * args.key_dim + std::int64_t{head} * args.value_dim + (active ? column : 0);
  KeyQuery<kRows> next = load_key_query<kRows>(args, slice.first_row, key_head, first_row);
  for (std::int32_t t = 0; t < slice.num_tokens; ++t) {
    const std::int64_t row = std::int64_t{slice.first_row} + t;
    const KeyQuery<kRows> now = next;
    if (t + 1 < slice.num_tokens) next = load_key_query<kRows>(args, row + 1, key_head, first_row);
    const float* const gates = args.gates + row * (2 * args.value_heads + args.key_heads);
    const float decay = gates[head];
    const float beta = gates[args.value_heads + head];
    const float product = gates[2 * args.value_heads + key_head];
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      float by_key = 0.0F;
      float by_query = 0.0F;
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        by_key = __fmaf_rn(s[r][c], now.k[r], by_key);
        by_query = __fmaf_rn(s[r][c], now.q[r], by_query);
      }
      by_key = column_sum(by_key);
      by_query = column_sum(by_query);
      const float v = args.u[row * args.channels + v_at + c];
      const float delta = __fmul_rn(beta, __fmaf_rn(-decay, by_key, v));
#pragma unroll
      for (int r = 0; r < kRows; ++r) s[r][c] = __fmaf_rn(now.k[r], delta, __fmul_rn(decay, s[r][c]));
      const float output = __fmaf_rn(product, delta, __fmul_rn(decay, by_query));
      if (active && lane == 0) {
        if constexpr (kNorms) {
          outputs[column + c] = output;
        } else {
          args.o[row * value_width + std::int64_t{head} * args.value_dim + column + c] = output;
        }
      }
    }
  }
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      if (active && first_row + r < args.key_dim) state[std::int64_t{first_row + r} * args.value_dim + c] = s[r][c];
    }
  }
  if constexpr (kNorms) {
    __syncthreads();
    norm_output(args, slice.first_row, head, outputs, static_cast<int>(threadIdx.x), static_cast<int>(blockDim.x));
  }
}

/// A warp a value head.
__global__ void __launch_bounds__(kThreads) gated_norm_kernel(const __grid_constant__ DeltaNetKernelArgs args) {
  release_successor();
  wait_for_predecessor();
  const std::int64_t row = blockIdx.x;
  if (args.step.slice_of_row[row] < 0) return;
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const auto first = static_cast<std::int32_t>(blockIdx.y * kWarps + threadIdx.x / kWarpSize);
  for (std::int32_t h = first; h < args.value_heads; h += kWarps * static_cast<std::int32_t>(gridDim.y)) {
    const float* const o = args.o + (row * args.value_heads + h) * args.value_dim;
    norm_output(args, row, h, o, lane, kWarpSize);
  }
}

template <int kRows, int kColumns, bool kNorms>
Status run_recurrence(const CudaContext& context, const DeltaNetKernelArgs& args) {
  const int threads = kNorms ? args.value_dim / kColumns * kLanesPerColumn : kThreads;
  const int columns = threads / kLanesPerColumn * kColumns;
  const LaunchShape shape = {dim3(static_cast<unsigned>((args.value_dim + columns - 1) / columns),
                                  static_cast<unsigned>(args.value_heads), static_cast<unsigned>(args.step.num_slices)),
                             dim3(static_cast<unsigned>(threads))};
  return launch(context, shape, recurrence_kernel<kRows, kColumns, kNorms>, args);
}

/// Slices of one token whose heads have all their columns in one block.
bool is_step(const DeltaNetKernelArgs& args, std::int32_t longest) {
  return longest == 1 && args.key_dim <= kMostStepKeys && args.value_dim <= kMostNormed && args.value_dim % 16 == 0;
}

/// Four columns a lane read whole sectors of the state, one column keeps more lanes busy with a long prompt. A column's
/// arithmetic is the same in both.
template <int kRows>
Status choose_columns(const CudaContext& context, const DeltaNetKernelArgs& args, std::int32_t longest) {
  if constexpr (kRows * kLanesPerColumn <= kMostStepKeys) {
    if (is_step(args, longest)) return run_recurrence<kRows, 4, true>(context, args);
    if (longest <= 4 && args.value_dim % 4 == 0) return run_recurrence<kRows, 4, false>(context, args);
  }
  return run_recurrence<kRows, 1, false>(context, args);
}

Status choose_rows(const CudaContext& context, const DeltaNetKernelArgs& args, std::int32_t longest) {
  if (args.key_dim <= 8 * kLanesPerColumn) return choose_columns<8>(context, args, longest);
  if (args.key_dim <= 16 * kLanesPerColumn) return choose_columns<16>(context, args, longest);
  return choose_columns<kMaxKeyDim / kLanesPerColumn>(context, args, longest);
}

Result<DeltaNetKernelArgs> make_kernel_args(CudaContext& context, const GatedDeltaNetArgs& args) {
  VN_ASSIGN(const StepView step, context.tables.step(args.slices, args.qkv.rows));
  const auto bytes = [&](std::int64_t cols) { return static_cast<std::size_t>(args.qkv.rows * cols) * sizeof(float); };
  const std::int64_t gates_per_row = 2 * std::int64_t{args.value_heads} + args.key_heads;
  VN_ASSIGN(void* u, context.scratch.get(ScratchSlot::kDeltaNetMixed, bytes(args.channels())));
  VN_ASSIGN(void* o, context.scratch.get(ScratchSlot::kDeltaNetOutput, bytes(args.value_width())));
  VN_ASSIGN(void* gates, context.scratch.get(ScratchSlot::kDeltaNetGates, bytes(gates_per_row)));
  return DeltaNetKernelArgs{.qkv = args.qkv,
                            .z = args.z,
                            .a = args.a,
                            .b = args.b,
                            .y = args.y,
                            .key_heads = args.key_heads,
                            .value_heads = args.value_heads,
                            .key_dim = args.key_dim,
                            .value_dim = args.value_dim,
                            .conv_width = args.conv_width,
                            .channels = static_cast<std::int32_t>(args.channels()),
                            .tiled_heads = args.tiled_heads,
                            .convolution_weight = args.convolution_weight.data(),
                            .decay_rate = args.decay_rate.data(),
                            .dt_bias = args.dt_bias.data(),
                            .norm = args.norm.data(),
                            .eps = args.eps,
                            .step = step,
                            .recurrent = args.recurrent,
                            .convolution = args.convolution,
                            .u = static_cast<float*>(u),
                            .o = static_cast<float*>(o),
                            .gates = static_cast<float*>(gates)};
}

}  // namespace

Status gated_delta_net(CudaContext& context, const GatedDeltaNetArgs& args) {
  if (args.conv_width > kMaxConvWidth || args.key_dim > kMaxKeyDim) {
    return fail(ErrorCode::kUnsupported, "cuda: gated_delta_net: convolutions of {} and keys of {}; at most {} and {}",
                args.conv_width, args.key_dim, kMaxConvWidth, kMaxKeyDim);
  }
  std::int32_t longest = 0;
  for (const SequenceSlice& slice : args.slices) longest = slice.num_tokens > longest ? slice.num_tokens : longest;
  if (longest == 0) return {};
  VN_ASSIGN(const DeltaNetKernelArgs kernel_args, make_kernel_args(context, args));
  const auto slices = static_cast<unsigned>(args.slices.size());
  const auto rows = static_cast<unsigned>(args.qkv.rows);
  if (is_step(kernel_args, longest)) {
    const auto blocks = static_cast<unsigned>(args.key_heads + (args.value_width() + kThreads - 1) / kThreads);
    VN_TRY(launch(context, {dim3(blocks, slices), dim3(kThreads)}, mix_kernel, kernel_args));
    return choose_rows(context, kernel_args, longest);
  }
  const auto channel_blocks = static_cast<unsigned>((args.channels() + kThreads - 1) / kThreads);
  const auto token_blocks = static_cast<unsigned>((longest + kConvTokens - 1) / kConvTokens);
  VN_TRY(launch(context, {dim3(channel_blocks, token_blocks, slices), dim3(kThreads)}, convolve_kernel, kernel_args));
  VN_TRY(launch(context, {dim3(channel_blocks, slices), dim3(kThreads)}, keep_inputs_kernel, kernel_args));
  VN_TRY(launch(context, {dim3(rows), dim3(kThreads)}, prepare_kernel, kernel_args));
  VN_TRY(choose_rows(context, kernel_args, longest));
  const auto head_blocks = static_cast<unsigned>((args.value_heads + kWarps - 1) / kWarps);
  return launch(context, {dim3(rows, head_blocks), dim3(kThreads)}, gated_norm_kernel, kernel_args);
}

}  // namespace vernier::cuda
