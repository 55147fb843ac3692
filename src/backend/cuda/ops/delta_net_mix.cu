// What comes before the gated delta net's recurrence: the convolution, the norms of q and k, decays and gates. Blocks
// take a key head's q and k each, or some channels of v; of a prompt kTileRows rows, of single tokens one. They let the
// next kernel begin only once everything in front has ended, so that it may read states at once.
#include "backend/cuda/ops/delta_net_kernels.h"
#include "backend/cuda/ops/math.cuh"
#include "backend/cuda/ops/prefetch.cuh"

namespace vernier::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kWarps = kThreads / kWarpSize;
constexpr int kTileRows = 16;
constexpr int kUsualWidth = 4;

/// A channel's weights, the newest input's last; kWidth - conv_width unused ones before them.
template <int kWidth>
struct ChannelWeights {
  float w[kWidth];

  __device__ void load(const DeltaNetKernelArgs& args, std::int32_t channel) {
    const float* const weights = args.convolution_weight + std::int64_t{channel} * args.conv_width;
#pragma unroll
    for (int j = 0; j < kWidth; ++j) {
      const int at = j - (kWidth - args.conv_width);
      w[j] = at >= 0 ? weights[at] : 0.0F;
    }
  }
  __device__ float apply(const DeltaNetKernelArgs& args, const float (&input)[kWidth]) const {
    float sum = 0.0F;
#pragma unroll
    for (int j = 0; j < kWidth; ++j) {
      if (j >= kWidth - args.conv_width) sum = __fmaf_rn(w[j], input[j], sum);
    }
    return silu(sum);
  }
};

/// A slot's inputs after a token: those that its convolution took, but the oldest.
template <int kWidth>
__device__ void keep_inputs(const DeltaNetKernelArgs& args, const float (&input)[kWidth], float* kept) {
#pragma unroll
  for (int j = 1; j < kWidth; ++j) {
    const std::int32_t to = j - 1 - (kWidth - args.conv_width);
    if (to >= 0) kept[std::int64_t{to} * args.channels] = input[j];
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

/// Gates of the n-th value head that uses `key_head`.
__device__ void write_gates(const DeltaNetKernelArgs& args, std::int64_t row, std::int32_t key_head, std::int32_t n,
                            float product) {
  const std::int32_t head = args.tiled_heads ? n * args.key_heads + key_head : key_head * args.sharing() + n;
  const float raised = args.a.data[row * args.a.stride + head] + args.dt_bias[head];
  const float decay = expf(args.decay_rate[head] * softplus(raised));
  const float beta = sigmoid(args.b.data[row * args.b.stride + head]);
  args.gates[row * args.value_heads + head] = {decay, beta, -(beta * decay), product};
}

/// A warp norms q and k of a key head and writes them. Returns their product, in all lanes.
__device__ float write_keys(const DeltaNetKernelArgs& args, std::int64_t row, std::int32_t key_head, const float* q,
                            const float* k) {
  const KeyNorms norms = norm_keys(q, k, args.key_dim);
  float* const to = args.keys + (row * args.key_heads + key_head) * 2 * args.padded_keys;
  for (std::int32_t d = static_cast<std::int32_t>(threadIdx.x) % kWarpSize; d < args.padded_keys; d += kWarpSize) {
    to[d] = d < args.key_dim ? k[d] * norms.k_factor : 0.0F;
    to[args.padded_keys + d] = d < args.key_dim ? q[d] * norms.q_factor : 0.0F;
  }
  return norms.product;
}

/// A number of a value head.
struct ValuePlace {
  std::int32_t offset;   ///< from a row's first value
  std::int32_t channel;  ///< -1: padding
};
__device__ ValuePlace value_place(const DeltaNetKernelArgs& args, std::int32_t offset) {
  const std::int32_t d = offset % args.padded_values;
  const std::int32_t head = offset / args.padded_values;
  const std::int32_t channel = 2 * args.key_heads * args.key_dim + head * args.value_dim + d;
  return {offset, d < args.value_dim ? channel : -1};
}

// --- prompts ---------------------------------------------------------------------------------------------------------

/// Where the slice of a row begins; slot -1: a row of no slice.
struct RowOrigin {
  std::int32_t first_row;
  std::int32_t slot;
  bool is_step;  ///< the slice's only row, whose input goes into the slot
  bool is_new;   ///< nothing precedes the slice
};

/// The rows of a block.
struct Tile {
  std::int32_t first;
  const RowOrigin* origins;  ///< of kTileRows rows
  bool is_whole;             ///< all rows are one longer slice's
};

/// By all threads; `origins` is shared memory.
__device__ Tile load_tile(const DeltaNetKernelArgs& args, RowOrigin* origins) {
  const auto thread = static_cast<int>(threadIdx.x);
  const std::int32_t first = static_cast<std::int32_t>(blockIdx.y) * kTileRows;
  if (thread < kTileRows) {
    const std::int32_t index = first + thread < args.qkv.rows ? args.step.slice_of_row[first + thread] : -1;
    RowOrigin origin = {0, -1, false, false};
    if (index >= 0) {
      const DeviceSlice slice = args.step.slices[index];
      origin = {slice.first_row, slice.state_slot, !args.is_scanned(slice.num_tokens), slice.past == 0};
    }
    origins[thread] = origin;
  }
  __syncthreads();
  const RowOrigin last = origins[kTileRows - 1];
  const bool is_whole = last.slot >= 0 && origins[0].slot == last.slot && origins[0].first_row == last.first_row;
  return {first, origins, is_whole};
}

/// The input that is `back` rows before a row, which is token t of its slice; nothing beyond the convolution's width.
__device__ float input_before(const DeltaNetKernelArgs& args, const RowOrigin& origin, std::int32_t t,
                              std::int32_t back, std::int32_t channel) {
  if (back >= args.conv_width) return 0.0F;
  if (t >= back) return args.qkv.data[(std::int64_t{origin.first_row} + t - back) * args.qkv.stride + channel];
  if (origin.is_new) return 0.0F;
  return args.inputs_of(origin.slot, channel)[std::int64_t{args.conv_width - 1 + t - back} * args.channels];
}

/// Calls sink(i, value) with the convolution of `channel` at each row of a tile that belongs to a slice.
template <int kWidth, class Sink>
__device__ void convolve_rows(const DeltaNetKernelArgs& args, const Tile& tile, std::int32_t channel,
                              const Sink& sink) {
  ChannelWeights<kWidth> weights;
  weights.load(args, channel);
  if (tile.is_whole) {
    // All inputs are asked for before the first is needed.
    const RowOrigin origin = tile.origins[0];
    float x[kWidth - 1 + kTileRows];
#pragma unroll
    for (int i = 0; i < kWidth - 1; ++i) {
      x[i] = input_before(args, origin, tile.first - origin.first_row, kWidth - 1 - i, channel);
    }
    const float* from = args.qkv.data + tile.first * args.qkv.stride + channel;
#pragma unroll
    for (int i = 0; i < kTileRows; ++i, from += args.qkv.stride) x[kWidth - 1 + i] = *from;
#pragma unroll
    for (int i = 0; i < kTileRows; ++i) {
      float input[kWidth];
#pragma unroll
      for (int j = 0; j < kWidth; ++j) input[j] = x[i + j];
      sink(i, weights.apply(args, input));
    }
    return;
  }
#pragma unroll 1
  for (int i = 0; i < kTileRows; ++i) {
    const RowOrigin origin = tile.origins[i];
    if (origin.slot < 0) continue;
    float input[kWidth];
#pragma unroll
    for (int j = 0; j < kWidth; ++j) {
      input[j] = input_before(args, origin, tile.first + i - origin.first_row, kWidth - 1 - j, channel);
    }
    if (origin.is_step) keep_inputs(args, input, args.inputs_of(origin.slot, channel));
    sink(i, weights.apply(args, input));
  }
}

template <int kWidth>
__global__ void __launch_bounds__(kThreads) mix_rows_kernel(const __grid_constant__ DeltaNetKernelArgs args) {
  extern __shared__ float heads[];  // [q and k, kTileRows, padded_keys]
  __shared__ RowOrigin origins[kTileRows];
  __shared__ float products[kTileRows];
  wait_for_predecessor();
  release_successor();
  const auto block = static_cast<std::int32_t>(blockIdx.x);
  const auto thread = static_cast<std::int32_t>(threadIdx.x);
  const Tile tile = load_tile(args, origins);
  if (block >= args.key_heads) {
    const std::int32_t width = args.value_heads * args.padded_values;
    const ValuePlace place = value_place(args, (block - args.key_heads) * kThreads + thread);
    if (place.offset >= width) return;
    float* const values = args.values + std::int64_t{tile.first} * width + place.offset;
    if (place.channel >= 0) {
      convolve_rows<kWidth>(args, tile, place.channel, [&](int i, float value) { values[i * width] = value; });
      return;
    }
#pragma unroll 1
    for (int i = 0; i < kTileRows && tile.first + i < args.qkv.rows; ++i) values[i * width] = 0.0F;
    return;
  }
#pragma unroll 1
  for (std::int32_t d = thread; d < 2 * args.padded_keys; d += kThreads) {
    const std::int32_t which = d / args.padded_keys;
    const std::int32_t key = d - which * args.padded_keys;
    if (key >= args.key_dim) continue;
    float* const to = heads + which * kTileRows * args.padded_keys + key;
    convolve_rows<kWidth>(args, tile, (which * args.key_heads + block) * args.key_dim + key,
                          [&](int i, float value) { to[i * args.padded_keys] = value; });
  }
  __syncthreads();
#pragma unroll 1
  for (int i = thread / kWarpSize; i < kTileRows; i += kWarps) {
    if (tile.origins[i].slot < 0) continue;
    const float product = write_keys(args, tile.first + i, block, heads + i * args.padded_keys,
                                     heads + (kTileRows + i) * args.padded_keys);
    if (thread % kWarpSize == 0) products[i] = product;
  }
  __syncthreads();
  // All rows at once: they wait for their inputs together.
  for (std::int32_t gate = thread; gate < kTileRows * args.sharing(); gate += kThreads) {
    const std::int32_t i = gate / args.sharing();
    if (tile.origins[i].slot >= 0) write_gates(args, tile.first + i, block, gate % args.sharing(), products[i]);
  }
}

// --- single tokens ---------------------------------------------------------------------------------------------------

/// A channel's convolution for the one token of a slice, whose input takes the oldest one's place.
template <int kWidth>
struct ChannelStep {
  ChannelWeights<kWidth> weights;
  float input[kWidth];

  /// Before the wait: weights, which no kernel writes.
  __device__ void prepare(const DeltaNetKernelArgs& args, const DeviceSlice& slice, std::int32_t channel) {
    weights.load(args, channel);
    const float* const kept = args.inputs_of(slice.state_slot, channel);
#pragma unroll
    for (int j = 0; j < kWidth - 1; ++j) {
      if (j < args.conv_width - 1) prefetch_line(kept + std::int64_t{j} * args.channels);
    }
  }
  /// A thread asks for the inputs of all its channels before it needs one.
  __device__ void load(const DeltaNetKernelArgs& args, const DeviceSlice& slice, std::int32_t channel) {
#pragma unroll
    for (int j = 0; j < kWidth; ++j) {
      const std::int32_t at = j - (kWidth - 1);
      input[j] = at > -args.conv_width ? args.input_at(slice, at, channel) : 0.0F;
    }
  }
  __device__ float finish(const DeltaNetKernelArgs& args, const DeviceSlice& slice, std::int32_t channel) const {
    keep_inputs(args, input, args.inputs_of(slice.state_slot, channel));
    return weights.apply(args, input);
  }
};

constexpr int kStepValues = 2;  ///< of v that a thread takes

/// Some channels of v.
template <int kWidth>
__device__ void mix_token_values(const DeltaNetKernelArgs& args, const DeviceSlice& slice, std::int32_t block) {
  const std::int32_t width = args.value_heads * args.padded_values;
  const bool has_token = slice.num_tokens > 0;
  ValuePlace places[kStepValues];
  ChannelStep<kWidth> steps[kStepValues];
  bool has_value[kStepValues];
#pragma unroll
  for (int i = 0; i < kStepValues; ++i) {
    places[i] = value_place(args, (block * kStepValues + i) * kThreads + static_cast<std::int32_t>(threadIdx.x));
    has_value[i] = has_token && places[i].offset < width && places[i].channel >= 0;
    if (has_value[i]) steps[i].prepare(args, slice, places[i].channel);
  }
  wait_for_predecessor();
  release_successor();
  if (!has_token) return;
#pragma unroll
  for (int i = 0; i < kStepValues; ++i) {
    if (has_value[i]) steps[i].load(args, slice, places[i].channel);
  }
  float* const values = args.values + std::int64_t{slice.first_row} * width;
#pragma unroll
  for (int i = 0; i < kStepValues; ++i) {
    if (places[i].offset >= width) continue;
    values[places[i].offset] = has_value[i] ? steps[i].finish(args, slice, places[i].channel) : 0.0F;
  }
}

template <int kWidth>
__global__ void __launch_bounds__(kThreads) mix_tokens_kernel(const __grid_constant__ DeltaNetKernelArgs args) {
  __shared__ float heads[2][kMaxKeyDim];
  const DeviceSlice slice = args.step.slices[blockIdx.y];
  const auto block = static_cast<std::int32_t>(blockIdx.x);
  const auto thread = static_cast<std::int32_t>(threadIdx.x);
  if (block >= args.key_heads) {
    mix_token_values<kWidth>(args, slice, block - args.key_heads);
    return;
  }
  const bool has_token = slice.num_tokens > 0;
  const std::int32_t dim = args.key_dim;
  const std::int32_t channels[2] = {block * dim + thread, (args.key_heads + block) * dim + thread};
  ChannelStep<kWidth> steps[2];  // of the first kThreads keys
  if (has_token && thread < dim) {
    for (int which = 0; which < 2; ++which) steps[which].prepare(args, slice, channels[which]);
  }
  wait_for_predecessor();
  release_successor();
  if (!has_token) return;
  if (thread < dim) {
#pragma unroll
    for (int which = 0; which < 2; ++which) steps[which].load(args, slice, channels[which]);
#pragma unroll
    for (int which = 0; which < 2; ++which) heads[which][thread] = steps[which].finish(args, slice, channels[which]);
  }
#pragma unroll 1
  for (std::int32_t more = kThreads; thread + more < dim; more += kThreads) {
    for (int which = 0; which < 2; ++which) {
      steps[0].prepare(args, slice, channels[which] + more);
      steps[0].load(args, slice, channels[which] + more);
      heads[which][thread + more] = steps[0].finish(args, slice, channels[which] + more);
    }
  }
  __syncthreads();
  if (thread >= kWarpSize) return;
  const float product = write_keys(args, slice.first_row, block, heads[0], heads[1]);
  for (std::int32_t n = thread; n < args.sharing(); n += kWarpSize) {
    write_gates(args, slice.first_row, block, n, product);
  }
}

template <int kWidth>
Status mix(const CudaContext& context, const DeltaNetKernelArgs& args) {
  const std::int32_t values = args.value_heads * args.padded_values;
  const auto blocks_of = [&](int threads) {
    return static_cast<unsigned>(args.key_heads + (values + threads - 1) / threads);
  };
  if (args.num_scanned == 0) {
    const dim3 grid(blocks_of(kThreads * kStepValues), static_cast<unsigned>(args.step.num_slices));
    const LaunchShape shape = {grid, dim3(kThreads)};
    return launch(context, shape, mix_tokens_kernel<kWidth>, args);
  }
  const auto tiles = static_cast<unsigned>((args.qkv.rows + kTileRows - 1) / kTileRows);
  const std::size_t shared_bytes = sizeof(float) * 2 * kTileRows * static_cast<std::size_t>(args.padded_keys);
  return launch(context, {dim3(blocks_of(kThreads), tiles), dim3(kThreads), shared_bytes}, mix_rows_kernel<kWidth>,
                args);
}

}  // namespace

Status run_delta_net_mix(const CudaContext& context, const DeltaNetKernelArgs& args) {
  return args.conv_width <= kUsualWidth ? mix<kUsualWidth>(context, args) : mix<kMaxConvWidth>(context, args);
}

}  // namespace vernier::cuda
