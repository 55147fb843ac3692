// The gated delta net's recurrence over the tokens of prompts, one after the other. A column of the state (one value
// dimension of a head) needs no other column: a warp keeps kWarpColumns of them in registers over all tokens of a
// slice, 16 lanes to a column, four columns to a lane. What bounds it is the chain from a token's S^T k through the
// shuffles of its sum to the next state, with the multiplications of one warp a scheduler beside it. Keys, values and
// gates of kRun tokens at a time come through shared memory while the run before is computed.
#include "backend/cuda/ops/delta_net_kernels.h"
#include "backend/cuda/ops/delta_net_math.cuh"

namespace vernier::cuda {
namespace {

constexpr int kLaneColumns = 2;
constexpr int kLaneParts = 2;                         ///< of a sum's: p and p + 8, whose sums meet first
constexpr int kColumnLanes = kKeyParts / kLaneParts;  ///< that share a column
constexpr int kGroups = kWarpSize / kColumnLanes;     ///< of columns in a warp
constexpr int kOwners = kColumnLanes / kLaneColumns;  ///< lanes that get the same column's sum
constexpr int kBlockColumns = 32;
constexpr int kThreads = kBlockColumns / kLaneColumns * kColumnLanes;

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
  static constexpr int kTokens = kQuads > 2 ? 8 : 16;
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
    has_values_ = value_token() < kTokens && column < args.padded_values;
  }
  /// Asks for the next run, whose tokens behind the slice's last are zeros.
  __device__ void fetch(Run<kQuads>& run) {
#pragma unroll
    for (int i = 0; i < kTokens / kPass; ++i) {
      const int t = key_token() + i * kPass;
      copy_16(&run.keys[t][0][key_piece()], keys_ + i * kPass * key_stride_, t < left_);
    }
    if (value_token() < kTokens) {
      copy_16(&run.values[value_token()][value_column()], values_, has_values_ && value_token() < left_);
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
  static_assert(kThreads % kKeyPieces == 0 && kTokens % kPass == 0 && kTokens * kValuePieces <= kThreads);

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

__device__ float from_lane(float value, int part_distance) {
  return __shfl_xor_sync(0xFFFFFFFFU, value, part_distance * kGroups);
}

/// Neighbouring columns of a row of the state.
struct alignas(sizeof(float) * kLaneColumns) ColumnGroup {
  float c[kLaneColumns];

  /// Number c goes to place c ^ pattern; the second time it's back.
  __device__ void permute(int pattern) {
#pragma unroll
    for (int bit = 1; bit < kLaneColumns; bit *= 2) {
#pragma unroll
      for (int i = 0; i < kLaneColumns; ++i) {
        if ((i & bit) != 0) continue;
        const float low = c[i];
        const float high = c[i | bit];
        c[i] = (pattern & bit) != 0 ? high : low;
        c[i | bit] = (pattern & bit) != 0 ? low : high;
      }
    }
  }
};

/// Sums of a token's products with the lane's columns, part by part.
struct PartSums {
  float sums[kLaneColumns][kLaneParts];
};

/// A lane's part of its columns' state.
template <int kQuads>
struct Columns {
  static constexpr int kKeys = kQuads * 4;
  float s[kLaneColumns][kLaneParts][kKeys];  ///< s[c] is column c ^ pattern of the group, s[0] the lane's own one
  int part;                                  ///< the lower of the lane's two
  int pattern;
  int first;  ///< column of the group

  __device__ explicit Columns(int first_column) {
    const auto thread = static_cast<int>(threadIdx.x);
    // Lanes that read the same keys are neighbours: their reads of shared memory are one.
    part = thread % kWarpSize / kGroups;
    pattern = part / kOwners;
    first = first_column + (thread / kWarpSize * kGroups + thread % kGroups) * kLaneColumns;
  }
  __device__ int own() const { return first + pattern; }
  __device__ int key(int h, int r) const { return r / 4 * kKeyStride + (part + h * kColumnLanes) * 4 + r % 4; }

  /// Whether rows of the state are whole groups.
  __device__ static bool has_groups(const DeltaNetKernelArgs& args) {
    return args.value_dim % kLaneColumns == 0 && reinterpret_cast<std::uintptr_t>(args.recurrent) % 16 == 0;
  }
  __device__ void load(const DeltaNetKernelArgs& args, const float* state) {
    const bool by_groups = has_groups(args);
#pragma unroll
    for (int r = 0; r < kLaneParts * kKeys; ++r) {
      const int at = key(r / kKeys, r % kKeys);
      ColumnGroup group = {};
      if (at < args.key_dim) {
        const float* const from = state + at * args.value_dim + first;
        if (by_groups && first < args.value_dim) group = *reinterpret_cast<const ColumnGroup*>(from);
#pragma unroll
        for (int c = 0; c < kLaneColumns; ++c) {
          if (!by_groups && first + c < args.value_dim) group.c[c] = from[c];
        }
      }
      group.permute(pattern);
#pragma unroll
      for (int c = 0; c < kLaneColumns; ++c) s[c][r / kKeys][r % kKeys] = group.c[c];
    }
  }
  __device__ void store(const DeltaNetKernelArgs& args, float* state) const {
    const bool by_groups = has_groups(args);
#pragma unroll
    for (int r = 0; r < kLaneParts * kKeys; ++r) {
      const int at = key(r / kKeys, r % kKeys);
      if (at >= args.key_dim) continue;
      ColumnGroup group;
#pragma unroll
      for (int c = 0; c < kLaneColumns; ++c) group.c[c] = s[c][r / kKeys][r % kKeys];
      group.permute(pattern);
      float* const to = state + at * args.value_dim + first;
      if (by_groups && first < args.value_dim) *reinterpret_cast<ColumnGroup*>(to) = group;
#pragma unroll
      for (int c = 0; c < kLaneColumns; ++c) {
        if (!by_groups && first + c < args.value_dim) to[c] = group.c[c];
      }
    }
  }

  /// Adds column c's products.
  __device__ void multiply(const float (&keys)[kLaneParts][kKeys], int c, PartSums& to) const {
#pragma unroll
    for (int r = 0; r < kKeys; ++r) {
#pragma unroll
      for (int h = 0; h < kLaneParts; ++h) to.sums[c][h] = __fmaf_rn(s[c][h][r], keys[h][r], to.sums[c][h]);
    }
  }
  __device__ void update(const Token<kQuads>& now, float delta, int c) {
#pragma unroll
    for (int r = 0; r < kKeys; ++r) {
#pragma unroll
      for (int h = 0; h < kLaneParts; ++h) s[c][h][r] = next_state(s[c][h][r], now.gates.decay, now.k[h][r], delta);
    }
  }
  __device__ void begin(const Token<kQuads>& now, PartSums& by_key) const {
    by_key = {};
    multiply(now.k, 0, by_key);
    multiply(now.k, 1, by_key);
  }
  /// A token: the new state, and the next one's products with it. Returns the output of the lane's own column.
  __device__ float advance(const Token<kQuads>& now, const Token<kQuads>& ahead, PartSums& by_key) {
    PartSums by_query = {};
    const float sent = from_lane(__fadd_rn(by_key.sums[1][0], by_key.sums[1][1]), 4);
    multiply(now.q, 1, by_query);
    float sum = __fadd_rn(__fadd_rn(by_key.sums[0][0], by_key.sums[0][1]), sent);
    const float half = from_lane(sum, 2);
    multiply(now.q, 0, by_query);
    const float query_sent = from_lane(__fadd_rn(by_query.sums[1][0], by_query.sums[1][1]), 4);
    sum = __fadd_rn(sum, half);
    sum = __fadd_rn(sum, from_lane(sum, 1));
    const float delta = delta_of(now.gates, sum, now.v);
    const float theirs = from_lane(delta, 4);
    float output = __fadd_rn(__fadd_rn(by_query.sums[0][0], by_query.sums[0][1]), query_sent);
    output = __fadd_rn(output, from_lane(output, 2));
    output = __fadd_rn(output, from_lane(output, 1));
    output = output_of(now.gates, output, delta);
    by_key = {};
    update(now, delta, 0);
    multiply(ahead.k, 0, by_key);
    update(now, theirs, 1);
    multiply(ahead.k, 1, by_key);
    return output;
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
  __shared__ __align__(16) Run<kQuads> runs[2];
  release_successor();
  wait_for_predecessor();
  const DeviceSlice slice = args.step.slices[scanned_slice(args, static_cast<int>(blockIdx.z))];
  const auto head = static_cast<std::int32_t>(blockIdx.y);
  const int first_column = static_cast<int>(blockIdx.x) * kBlockColumns;
  RunSource<kQuads> source(args, slice, head, first_column);
  source.fetch(runs[0]);
  float* const state = args.state_of(slice.state_slot, head);
  Columns<kQuads> columns(first_column);
  columns.load(args, state);
  keep_inputs(args, slice);
  const int own = columns.own() - first_column;
  const bool writes = columns.part % kOwners == 0 && columns.own() < args.value_dim;
  float* output =
      args.outputs + (std::int64_t{slice.first_row} * args.value_heads + head) * args.value_dim + columns.own();
  const std::int64_t output_stride = std::int64_t{args.value_heads} * args.value_dim;
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
      now.load(run, 0, columns.part, own);
      columns.begin(now, by_key);
    }
    const int count = min(kTokens, left);
#pragma unroll 2
    for (int t = start; t < count; ++t) {
      Token<kQuads> ahead;
      ahead.load(run, t, columns.part, own);
      const float result = columns.advance(now, ahead, by_key);
      if (writes) *output = result;
      output += output_stride;
      now = ahead;
    }
    start = 0;
  }
  const float result = columns.advance(now, now, by_key);
  if (writes) *output = result;
  columns.store(args, state);
}

/// Shared memory beside the runs that lets no more blocks into a multiprocessor than an even spread needs. While the
/// kernel in front still fills most of them, those that it has left would take several.
std::size_t padding_bytes(const CudaContext& context, std::int64_t num_blocks, std::size_t run_bytes) {
  constexpr std::int64_t kMostSpread = 3;
  const std::int64_t per_sm = (num_blocks + context.num_sms - 1) / context.num_sms;
  if (per_sm > kMostSpread) return 0;
  const std::size_t least = context.max_shared_bytes / static_cast<std::size_t>(per_sm + 1) + 1;
  return least > run_bytes ? least - run_bytes : 0;
}

template <int kQuads>
Status scan(const CudaContext& context, const DeltaNetKernelArgs& args) {
  const dim3 grid(static_cast<unsigned>((args.value_dim + kBlockColumns - 1) / kBlockColumns),
                  static_cast<unsigned>(args.value_heads), static_cast<unsigned>(args.num_scanned));
  const std::int64_t num_blocks = std::int64_t{grid.x} * grid.y * grid.z;
  const std::size_t padding = padding_bytes(context, num_blocks, 2 * sizeof(Run<kQuads>));
  return launch(context, {grid, dim3(kThreads), padding}, scan_kernel<kQuads>, args);
}

}  // namespace

Status run_delta_net_scan(const CudaContext& context, const DeltaNetKernelArgs& args) {
  if (args.padded_keys == kKeyStride) return scan<1>(context, args);
  if (args.padded_keys == 2 * kKeyStride) return scan<2>(context, args);
  return scan<kMaxKeyDim / kKeyStride>(context, args);
}

}  // namespace vernier::cuda
