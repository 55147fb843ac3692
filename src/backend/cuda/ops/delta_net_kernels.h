// The kernels of the gated delta net: what they share, and one function each that enqueues them. A prompt takes mix,
// scan and norm, single tokens mix and step; both by the arithmetic of delta_net_math.cuh, in the same order.
#pragma once

#include "backend/cuda/ops/launch.h"
#include "backend/cuda/ops/ops.h"

namespace vernier::cuda {

/// A state column's keys are summed in kKeyParts parts of fours: part p has keys 4 p to 4 p + 3 of each kKeyStride.
constexpr int kKeyParts = 16;
constexpr int kKeyStride = 4 * kKeyParts;

/// What a value head needs of a token besides vectors.
struct alignas(16) DeltaNetGates {
  float decay;
  float beta;
  float negative_share;  ///< -beta * decay
  float product;         ///< k.q
};

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
  std::int32_t padded_keys;    ///< key_dim rounded up to kKeyStride
  std::int32_t padded_values;  ///< value_dim rounded up to 4
  bool tiled_heads;
  bool has_steps;            ///< slices of one token are run_delta_net_step()'s, not the scan's
  std::int32_t num_scanned;  ///< slices that are
  const float* convolution_weight;
  const float* decay_rate;
  const float* dt_bias;
  const float* norm;
  float eps;
  StepView step;
  float* recurrent;
  float* convolution;
  // Working memory that one kernel leaves to the next.
  float* keys;           ///< [rows, key_heads, 2, padded_keys]: k, then q, both normed, zeros behind key_dim
  float* values;         ///< [rows, value_heads, padded_values], zeros behind value_dim
  DeltaNetGates* gates;  ///< [rows, value_heads]
  float* outputs;        ///< [rows, value_heads, value_dim]: before the norm

#ifdef __CUDACC__
  /// Whether the scan takes a slice of so many tokens.
  __device__ bool is_scanned(std::int32_t num_tokens) const { return num_tokens > (has_steps ? 1 : 0); }
  /// Value heads of a key head.
  __device__ std::int32_t sharing() const { return value_heads / key_heads; }
  __device__ std::int32_t key_head_of(std::int32_t head) const {
    return tiled_heads ? head % key_heads : head / sharing();
  }
  __device__ const float* keys_of(std::int64_t row, std::int32_t key_head) const {
    return keys + (row * key_heads + key_head) * 2 * padded_keys;
  }
  __device__ const float* values_of(std::int64_t row, std::int32_t head) const {
    return values + (row * value_heads + head) * padded_values;
  }
  /// [key_dim, value_dim]
  __device__ float* state_of(std::int32_t slot, std::int32_t head) const {
    return recurrent + (std::int64_t{slot} * value_heads + head) * key_dim * value_dim;
  }
  /// A channel's kept inputs, the oldest first, `channels` numbers apart.
  __device__ float* inputs_of(std::int32_t slot, std::int32_t channel) const {
    return convolution + std::int64_t{slot} * (conv_width - 1) * channels + channel;
  }
  /// The input of `channel` at token t of a slice; before the slice it lies in the slot, or
  /// is zero before a sequence.
  __device__ float input_at(const DeviceSlice& slice, std::int32_t t, std::int32_t channel) const {
    if (t >= 0) return qkv.data[(std::int64_t{slice.first_row} + t) * qkv.stride + channel];
    if (slice.past == 0) return 0.0F;
    return inputs_of(slice.state_slot, channel)[std::int64_t{conv_width - 1 + t} * channels];
  }
#endif
};

constexpr std::int32_t kMaxConvWidth = 16;
constexpr std::int32_t kMaxKeyDim = 256;

/// Whether a head fits into one block of the step's kernel.
[[nodiscard]] bool delta_net_step_fits(const DeltaNetKernelArgs& args);

/// Convolution, norms of q and k, gates: keys, values and gates of all rows. The inputs of slices that aren't scanned
/// go into their slots.
[[nodiscard]] Status run_delta_net_mix(const CudaContext& context, const DeltaNetKernelArgs& args);
/// The recurrence of slices of one token, and their y.
[[nodiscard]] Status run_delta_net_step(const CudaContext& context, const DeltaNetKernelArgs& args);
/// The recurrence of the scanned slices: their `outputs`, and the last inputs into their slots.
[[nodiscard]] Status run_delta_net_scan(const CudaContext& context, const DeltaNetKernelArgs& args);
/// y from `outputs`.
[[nodiscard]] Status run_delta_net_norm(const CudaContext& context, const DeltaNetKernelArgs& args);

}  // namespace vernier::cuda
