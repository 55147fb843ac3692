// The gated delta net's recurrence for single tokens: bound by reading and writing the state, in whole rows of a head.
#include "backend/cuda/ops/delta_net_kernels.h"
#include "backend/cuda/ops/delta_net_math.cuh"

namespace vernier::cuda {
namespace {

constexpr int kWarps = 8;
constexpr int kThreads = kWarps * kWarpSize;
constexpr int kBlocksPerSm = 2;  ///< one loads while the other computes and stores
constexpr int kMostColumns = 4 * kWarpSize;
constexpr int kPartsPerWarp = kKeyParts / kWarps;
static_assert(kPartsPerWarp == 2, "a warp has parts p and p + 8, whose sums meet first");

template <int kQuads>
struct StepShared {
  float keys[2][kQuads * kKeyStride];  ///< k and q
  float by_key[kWarps][kMostColumns];
  float by_query[kWarps][kMostColumns];
  float delta[kMostColumns];
  float output[kMostColumns];
};

/// Four columns of the state, zeros where there are none.
__device__ float4 load_four(const float* from, bool inside) {
  return inside ? *reinterpret_cast<const float4*>(from) : make_float4(0.0F, 0.0F, 0.0F, 0.0F);
}
__device__ void accumulate(float4& sums, const float4& state, float key) {
  sums.x = __fmaf_rn(state.x, key, sums.x);
  sums.y = __fmaf_rn(state.y, key, sums.y);
  sums.z = __fmaf_rn(state.z, key, sums.z);
  sums.w = __fmaf_rn(state.w, key, sums.w);
}
__device__ float4 sum_of(const float4& a, const float4& b) {
  return make_float4(__fadd_rn(a.x, b.x), __fadd_rn(a.y, b.y), __fadd_rn(a.z, b.z), __fadd_rn(a.w, b.w));
}
__device__ float component(const float4& four, int j) {
  return j == 0 ? four.x : j == 1 ? four.y : j == 2 ? four.z : four.w;
}

/// A warp's share of a head's state, in registers: two parts of its keys, four columns a lane.
template <int kQuads>
struct StateShare {
  float4 rows[kPartsPerWarp][kQuads][4];
  std::int32_t key_dim;
  std::int32_t value_dim;
  int warp;
  int column;

  __device__ explicit StateShare(const DeltaNetKernelArgs& args)
      : key_dim(args.key_dim),
        value_dim(args.value_dim),
        warp(static_cast<int>(threadIdx.x) / kWarpSize),
        column(static_cast<int>(threadIdx.x) % kWarpSize * 4) {}
  __device__ int first_key(int part, int quad) const { return quad * kKeyStride + 4 * (warp + part * kWarps); }
  __device__ bool has(int key) const { return key < key_dim && column < value_dim; }
  /// Zeros for a new sequence.
  __device__ void load(const float* state, bool is_new) {
#pragma unroll
    for (int p = 0; p < kPartsPerWarp; ++p) {
#pragma unroll
      for (int i = 0; i < kQuads * 4; ++i) {
        const int key = first_key(p, i / 4) + i % 4;
        rows[p][i / 4][i % 4] = load_four(state + key * value_dim + column, has(key) && !is_new);
      }
    }
  }
  /// The sums over the warp's keys with k and with q.
  __device__ void products(const float* k, const float* q, float4& by_key, float4& by_query) const {
    float4 key_sums[kPartsPerWarp] = {};
    float4 query_sums[kPartsPerWarp] = {};
#pragma unroll
    for (int p = 0; p < kPartsPerWarp; ++p) {
#pragma unroll
      for (int i = 0; i < kQuads; ++i) {
        const float4 k4 = *reinterpret_cast<const float4*>(k + first_key(p, i));
        const float4 q4 = *reinterpret_cast<const float4*>(q + first_key(p, i));
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          const float4 old = rows[p][i][j];
          accumulate(key_sums[p], old, component(k4, j));
          accumulate(query_sums[p], old, component(q4, j));
        }
      }
    }
    by_key = sum_of(key_sums[0], key_sums[1]);
    by_query = sum_of(query_sums[0], query_sums[1]);
  }
  __device__ void update(const float* k, float decay, const float4& delta, float* state) const {
#pragma unroll
    for (int p = 0; p < kPartsPerWarp; ++p) {
#pragma unroll
      for (int i = 0; i < kQuads; ++i) {
        const float4 k4 = *reinterpret_cast<const float4*>(k + first_key(p, i));
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          const int key = first_key(p, i) + j;
          const float4 old = rows[p][i][j];
          const float kj = component(k4, j);
          if (!has(key)) continue;
          *reinterpret_cast<float4*>(state + key * value_dim + column) =
              make_float4(next_state(old.x, decay, kj, delta.x), next_state(old.y, decay, kj, delta.y),
                          next_state(old.z, decay, kj, delta.z), next_state(old.w, decay, kj, delta.w));
        }
      }
    }
  }
};

__device__ float column_sum(const float (&parts)[kWarps][kMostColumns], int column) {
  float pairs[kWarps];
#pragma unroll
  for (int p = 0; p < kWarps; ++p) pairs[p] = parts[p][column];
  return sum_of_pairs(pairs);
}

/// A block a value head of a slice.
template <int kQuads>
__global__ void __launch_bounds__(kThreads, kBlocksPerSm) step_kernel(const __grid_constant__ DeltaNetKernelArgs args) {
  __shared__ __align__(16) StepShared<kQuads> shared;
  release_successor();
  const DeviceSlice slice = args.step.slices[blockIdx.y];
  const bool is_step = slice.num_tokens == 1;
  const auto head = static_cast<std::int32_t>(blockIdx.x);
  const int thread = static_cast<int>(threadIdx.x);
  const std::int64_t row = slice.first_row;
  float* const state = args.state_of(slice.state_slot, head);
  StateShare<kQuads> share(args);
  // While the mixing in front still runs: what wrote the state had ended before that let this kernel begin.
  share.load(state, !is_step || slice.past == 0);
  wait_for_predecessor();
  if (!is_step) return;
  if (thread < kQuads * kKeyStride / 2) {
    const float* const keys = args.keys_of(row, args.key_head_of(head));
    reinterpret_cast<float4*>(shared.keys)[thread] = reinterpret_cast<const float4*>(keys)[thread];
  }
  const DeltaNetGates gates = args.gates[row * args.value_heads + head];
  const bool has_column = thread < args.value_dim;
  const float v = has_column ? args.values_of(row, head)[thread] : 0.0F;
  const std::int64_t at = std::int64_t{head} * args.value_dim + thread;
  const float z = has_column ? args.z.data[row * args.z.stride + at] : 0.0F;
  __syncthreads();
  float4 by_key;
  float4 by_query;
  share.products(shared.keys[0], shared.keys[1], by_key, by_query);
  *reinterpret_cast<float4*>(shared.by_key[share.warp] + share.column) = by_key;
  *reinterpret_cast<float4*>(shared.by_query[share.warp] + share.column) = by_query;
  __syncthreads();
  if (thread < kMostColumns) {
    const float delta = delta_of(gates, column_sum(shared.by_key, thread), v);
    shared.delta[thread] = delta;
    shared.output[thread] = output_of(gates, column_sum(shared.by_query, thread), delta);
  }
  __syncthreads();
  share.update(shared.keys[0], gates.decay, *reinterpret_cast<const float4*>(shared.delta + share.column), state);
  if (thread < kMostColumns) {
    const float factor = norm_factor(shared.output, args.value_dim, args.eps);
    if (has_column) {
      args.y.data[row * args.y.stride + at] = gated_output(args.norm[thread], shared.output[thread], factor, z);
    }
  }
}

template <int kQuads>
Status step(const CudaContext& context, const DeltaNetKernelArgs& args) {
  const dim3 grid(static_cast<unsigned>(args.value_heads), static_cast<unsigned>(args.step.num_slices));
  return launch(context, {grid, dim3(kThreads)}, step_kernel<kQuads>, args);
}

}  // namespace

bool delta_net_step_fits(const DeltaNetKernelArgs& args) {
  // A lane reads and writes four columns at once.
  const bool is_aligned = args.value_dim % 4 == 0 && reinterpret_cast<std::uintptr_t>(args.recurrent) % 16 == 0;
  return is_aligned && args.key_dim <= 2 * kKeyStride && args.value_dim <= kMostColumns;
}

Status run_delta_net_step(const CudaContext& context, const DeltaNetKernelArgs& args) {
  return args.padded_keys == kKeyStride ? step<1>(context, args) : step<2>(context, args);
}

}  // namespace vernier::cuda
