// The gated delta net's recurrence over the tokens of prompts, one after the other. A column of the state (one value
// dimension of a head) needs no other column: a warp keeps kWarpColumns of them in registers over all tokens of a
// slice, kColumnLanes lanes to a column. What bounds it is the chain from a token's S^T k through the
// shuffles of its sum to the next state, with the multiplications of one warp a scheduler beside it. Keys, values and
// gates of kRun tokens at a time come through shared memory while the run before is computed.
#include "backend/cuda/ops/delta_net_kernels.h"
#include "backend/cuda/ops/delta_net_math.cuh"

namespace vernier::cuda {
namespace {

constexpr int kLaneParts = 4;                         ///< of a sum's: p, p + 4, p + 8 and p + 12
constexpr int kColumnLanes = kKeyParts / kLaneParts;  ///< that share a column
constexpr int kWarpColumns = kWarpSize / kColumnLanes;
constexpr int kBlockColumns = 32;
constexpr int kThreads = kBlockColumns * kColumnLanes;

/// 16 bytes from device to shared memory, or as many zeros.
__device__ void copy_16(void* to, const void* from, bool is_there) {
#if __CUDA_ARCH__ >= 800
  const auto address = static_cast<unsigned>(__cvta_generic_to_shared(to));
  const int size_bytes = is_there ? 16 : 0;
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(address), "l"(from), "r"(size_bytes) : "memory");
#else
  *static_cast<float4*>(to) = is_there ? *static_cast<const float4*>(from) : make_float4(0.0F, 0.0F, 0.0F, 0.0F);
#endif
}
__device__ void wait_for_copies() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_all;" ::: "memory");
#endif
}

/// What a block needs of a run of tokens.
template <int kQuads>
struct Run {
  static constexpr int kTokens = kQuads > 2 ? 16 : 32;
  static constexpr int kKeys = kQuads * kKeyStride;
  float keys[kTokens][2][kKeys];  ///< k and q
  float values[kTokens][kBlockColumns];
  DeltaNetGates gates[kTokens];
};

/// Where a thread's part of the next run comes from.
template <int kQuads>
class RunSource {
 public:
  __device__ RunSource(const DeltaNetKernelArgs& args, const DeviceSlice& slice, std::int32_t head, int first_column)
      : left_(slice.num_tokens),
        key_stride_(std::int64_t{args.key_heads} * 2 * args.padded_keys),
        value_stride_(std::int64_t{args.value_heads} * args.padded_values),
        gate_stride_(args.value_heads) {
    const std::int64_t row = slice.first_row;
    const int column = first_column + value_column();
    keys_ = args.keys_of(row + key_token(), args.key_head_of(head)) + key_piece();
    values_ = args.values_of(row + value_token(), head) + column;
    gates_ = args.gates + (row + thread()) * args.value_heads + head;
    has_values_ = column < args.padded_values;
  }
  /// Asks for the next run, whose tokens behind the slice's last are zeros.
  __device__ void fetch(Run<kQuads>& run) {
#pragma unroll
    for (int i = 0; i < kTokens / kPass; ++i) {
      const int t = key_token() + i * kPass;
      copy_16(&run.keys[t][0][key_piece()], keys_ + i * kPass * key_stride_, t < left_);
    }
#pragma unroll
    for (int i = 0; i < kTokens / kValuePass; ++i) {
      const int t = value_token() + i * kValuePass;
      copy_16(&run.values[t][value_column()], values_ + i * kValuePass * value_stride_, has_values_ && t < left_);
    }
    if (thread() < kTokens) copy_16(&run.gates[thread()], gates_, thread() < left_);
    keys_ += kTokens * key_stride_;
    values_ += kTokens * value_stride_;
    gates_ += kTokens * gate_stride_;
    left_ -= kTokens;
  }

 private:
  static constexpr int kTokens = Run<kQuads>::kTokens;
  static constexpr int kKeyPieces = 2 * Run<kQuads>::kKeys / 4;
  static constexpr int kPass = kThreads / kKeyPieces;  ///< tokens whose keys all threads together take at once
  static constexpr int kValuePieces = kBlockColumns / 4;
  static constexpr int kValuePass = kThreads / kValuePieces;
  static_assert(kThreads % kKeyPieces == 0 && kTokens % kPass == 0 && kTokens % kValuePass == 0);

  __device__ static int thread() { return static_cast<int>(threadIdx.x); }
  __device__ static int key_token() { return thread() / kKeyPieces; }
  __device__ static int key_piece() { return thread() % kKeyPieces * 4; }
  __device__ static int value_token() { return thread() / kValuePieces; }
  __device__ static int value_column() { return thread() % kValuePieces * 4; }

  const float* keys_;
  const float* values_;
  const DeltaNetGates* gates_;
  int left_;  ///< tokens of the slice that have not been asked for
  bool has_values_;
  std::int64_t key_stride_;
  std::int64_t value_stride_;
  std::int64_t gate_stride_;
};

/// A token as a lane needs it.
template <int kQuads>
struct Token {
  static constexpr int kKeys = kQuads * 4;
  float k[kLaneParts][kKeys];
  float q[kLaneParts][kKeys];
  DeltaNetGates gates;
  float v;  ///< of the lane's own column

  __device__ void load(const Run<kQuads>& run, int t, int part, int own) {
#pragma unroll
    for (int h = 0; h < kLaneParts; ++h) {
#pragma unroll
      for (int i = 0; i < kQuads; ++i) {
        const int at = i * kKeyStride + (part + h * kColumnLanes) * 4;
        const float4 k4 = *reinterpret_cast<const float4*>(&run.keys[t][0][at]);
        const float4 q4 = *reinterpret_cast<const float4*>(&run.keys[t][1][at]);
        k[h][i * 4] = k4.x, k[h][i * 4 + 1] = k4.y, k[h][i * 4 + 2] = k4.z, k[h][i * 4 + 3] = k4.w;
        q[h][i * 4] = q4.x, q[h][i * 4 + 1] = q4.y, q[h][i * 4 + 2] = q4.z, q[h][i * 4 + 3] = q4.w;
      }
    }
    gates = run.gates[t];
    v = run.values[t][own];
  }
};

__device__ float from_part(float value, int distance) {
  return __shfl_xor_sync(0xFFFFFFFFU, value, distance * kWarpColumns);
}

/// Sums of a token's products with a column, a lane's parts of it.
struct PartSums {
  float parts[kLaneParts];

  /// Over the lane's parts.
  __device__ float own() const { return __fadd_rn(__fadd_rn(parts[0], parts[2]), __fadd_rn(parts[1], parts[3])); }
};

/// A lane's part of its column's state.
template <int kQuads>
struct Column {
  static constexpr int kKeys = kQuads * 4;
  float s[kLaneParts][kKeys];
  int part;   ///< the lowest of the lane's
  int index;  ///< of the column in the head

  __device__ explicit Column(int first_column) {
    const auto thread = static_cast<int>(threadIdx.x);
    // Lanes that read the same keys are neighbours: their reads of shared memory are one.
    part = thread % kWarpSize / kWarpColumns;
    index = first_column + thread / kWarpSize * kWarpColumns + thread % kWarpColumns;
  }
  __device__ int key(int h, int r) const { return r / 4 * kKeyStride + (part + h * kColumnLanes) * 4 + r % 4; }

  /// Zeros for a new sequence.
  __device__ void load(const DeltaNetKernelArgs& args, const float* state, bool is_new) {
#pragma unroll
    for (int r = 0; r < kLaneParts * kKeys; ++r) {
      const int at = key(r / kKeys, r % kKeys);
      const bool is_there = !is_new && at < args.key_dim && index < args.value_dim;
      s[r / kKeys][r % kKeys] = is_there ? state[at * args.value_dim + index] : 0.0F;
    }
  }
  __device__ void store(const DeltaNetKernelArgs& args, float* state) const {
#pragma unroll
    for (int r = 0; r < kLaneParts * kKeys; ++r) {
      const int at = key(r / kKeys, r % kKeys);
      if (at < args.key_dim && index < args.value_dim) state[at * args.value_dim + index] = s[r / kKeys][r % kKeys];
    }
  }
  __device__ PartSums multiply(const float (&keys)[kLaneParts][kKeys]) const {
    PartSums result = {};
#pragma unroll
    for (int r = 0; r < kKeys; ++r) {
#pragma unroll
      for (int h = 0; h < kLaneParts; ++h) result.parts[h] = __fmaf_rn(s[h][r], keys[h][r], result.parts[h]);
    }
    return result;
  }
  /// A token: the new state, and the next one's products with it. Returns the token's output.
  __device__ float advance(const Token<kQuads>& now, const Token<kQuads>& ahead, PartSums& by_key) {
    float sum = by_key.own();
    const float half = from_part(sum, 2);
    float output = multiply(now.q).own();
    sum = __fadd_rn(sum, half);
    sum = __fadd_rn(sum, from_part(sum, 1));
    output = __fadd_rn(output, from_part(output, 2));
    output = __fadd_rn(output, from_part(output, 1));
    const float delta = delta_of(now.gates, sum, now.v);
#pragma unroll
    for (int r = 0; r < kKeys; ++r) {
#pragma unroll
      for (int h = 0; h < kLaneParts; ++h) s[h][r] = next_state(s[h][r], now.gates.decay, now.k[h][r], delta);
    }
    by_key = multiply(ahead.k);
    return output_of(now.gates, output, delta);
  }
};

/// Leaves the slice's last conv_width - 1 inputs in its slot, which the kernel in front has read: channels spread over
/// the slice's blocks.
__device__ void keep_inputs(const DeltaNetKernelArgs& args, const DeviceSlice& slice) {
  const auto block = static_cast<std::int32_t>(blockIdx.x + blockIdx.y * gridDim.x);
  const auto stride = static_cast<std::int32_t>(gridDim.x * gridDim.y) * kThreads;
  for (std::int32_t channel = block * kThreads + static_cast<std::int32_t>(threadIdx.x); channel < args.channels;
       channel += stride) {
    float kept[kMaxConvWidth - 1];
#pragma unroll
    for (int j = 0; j < kMaxConvWidth - 1; ++j) {
      if (j < args.conv_width - 1) {
        kept[j] = args.input_at(slice, slice.num_tokens - args.conv_width + 1 + j, channel);
      }
    }
    float* const inputs = args.inputs_of(slice.state_slot, channel);
#pragma unroll
    for (int j = 0; j < kMaxConvWidth - 1; ++j) {
      if (j < args.conv_width - 1) inputs[std::int64_t{j} * args.channels] = kept[j];
    }
  }
}

/// The n-th of the slices that the scan takes, the same in all threads.
__device__ int scanned_slice(const DeltaNetKernelArgs& args, int n) {
  if (args.num_scanned == args.step.num_slices) return n;
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  for (int first = 0; first < args.step.num_slices; first += kWarpSize) {
    const int slice = first + lane;
    const bool is_one = slice < args.step.num_slices && args.is_scanned(args.step.slices[slice].num_tokens);
    const unsigned found = __ballot_sync(0xFFFFFFFFU, is_one);
    const int count = __popc(found);
    if (n < count) return first + static_cast<int>(__fns(found, 0, n + 1));
    n -= count;
  }
  return 0;
}

/// A block kBlockColumns columns of a value head of a slice.
template <int kQuads>
__global__ void __launch_bounds__(kThreads) scan_kernel(const __grid_constant__ DeltaNetKernelArgs args) {
  constexpr int kTokens = Run<kQuads>::kTokens;
  extern __shared__ float4 scan_memory[];
  auto* const runs = reinterpret_cast<Run<kQuads>*>(scan_memory);  // two
  release_successor();
  wait_for_predecessor();
  const DeviceSlice slice = args.step.slices[scanned_slice(args, static_cast<int>(blockIdx.z))];
  const auto head = static_cast<std::int32_t>(blockIdx.y);
  const int first_column = static_cast<int>(blockIdx.x) * kBlockColumns;
  RunSource<kQuads> source(args, slice, head, first_column);
  source.fetch(runs[0]);
  float* const state = args.state_of(slice.state_slot, head);
  Column<kQuads> column(first_column);
  column.load(args, state, slice.past == 0);
  keep_inputs(args, slice);
  const int own = column.index - first_column;
  const bool writes = column.part == 0 && column.index < args.value_dim;
  const std::int64_t output_stride = std::int64_t{args.value_heads} * args.value_dim;
  float* output = args.outputs + slice.first_row * output_stride + head * args.value_dim + column.index;
  Token<kQuads> now;
  PartSums by_key;
  int which = 0;
  int start = 1;  // the slice's first token is at hand when the loop begins
  for (std::int32_t left = slice.num_tokens; left > 0; left -= kTokens) {
    const Run<kQuads>& run = runs[which];
    which ^= 1;
    wait_for_copies();
    __syncthreads();
    if (left > kTokens) source.fetch(runs[which]);
    if (start == 1) {
      now.load(run, 0, column.part, own);
      by_key = column.multiply(now.k);
    }
    const int count = min(kTokens, left);
#pragma unroll 2
    for (int t = start; t < count; ++t) {
      Token<kQuads> ahead;
      ahead.load(run, t, column.part, own);
      const float result = column.advance(now, ahead, by_key);
      if (writes) *output = result;
      output += output_stride;
      now = ahead;
    }
    start = 0;
  }
  const float result = column.advance(now, now, by_key);
  if (writes) *output = result;
  column.store(args, state);
}

/// Shared memory for the runs, and more where that lets no more blocks into a multiprocessor than an even spread needs:
/// while the kernel in front still fills most of them, those that it has left would take several.
std::size_t shared_bytes(const CudaContext& context, std::int64_t num_blocks, std::size_t run_bytes) {
  constexpr std::int64_t kMostSpread = 3;
  const std::int64_t per_sm = (num_blocks + context.num_sms - 1) / context.num_sms;
  if (per_sm > kMostSpread) return run_bytes;
  const std::size_t least = context.max_shared_bytes / static_cast<std::size_t>(per_sm + 1) + 1;
  return least > run_bytes ? least : run_bytes;
}

template <int kQuads>
Status scan(const CudaContext& context, const DeltaNetKernelArgs& args) {
  const dim3 grid(static_cast<unsigned>((args.value_dim + kBlockColumns - 1) / kBlockColumns),
                  static_cast<unsigned>(args.value_heads), static_cast<unsigned>(args.num_scanned));
  const std::int64_t num_blocks = std::int64_t{grid.x} * grid.y * grid.z;
  const std::size_t bytes = shared_bytes(context, num_blocks, 2 * sizeof(Run<kQuads>));
  return launch(context, {grid, dim3(kThreads), bytes}, scan_kernel<kQuads>, args);
}

}  // namespace

Status run_delta_net_scan(const CudaContext& context, const DeltaNetKernelArgs& args) {
  if (args.padded_keys == kKeyStride) return scan<1>(context, args);
  if (args.padded_keys == 2 * kKeyStride) return scan<2>(context, args);
  return scan<kMaxKeyDim / kKeyStride>(context, args);
}

}  // namespace vernier::cuda
