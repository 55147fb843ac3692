// The gated delta net's recurrence for single tokens: bound by reading and writing the state, in whole rows of a head.
// With many of them on sm_90 the copy engines move it through shared memory, so that more of it is under way.
#include <algorithm>
#include <string_view>

#include "backend/cuda/ops/delta_net_kernels.h"
#include "backend/cuda/ops/delta_net_math.cuh"

namespace vernier::cuda {
namespace {

constexpr int kWarps = 8;
constexpr int kThreads = kWarps * kWarpSize;
constexpr int kBlocksPerSm = 2;      ///< one loads while the other computes and stores
constexpr int kBulkBlocksPerSm = 3;  ///< as many as have room for their state
constexpr int kBulkWaves = 4;        ///< of blocks from which the copy engines pay
constexpr int kMostColumns = 4 * kWarpSize;
constexpr int kPartsPerWarp = kKeyParts / kWarps;
static_assert(kPartsPerWarp == 2, "a warp has parts p and p + 8, whose sums meet first");

struct StepShared {
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

/// A warp's share of a head's state: two parts of its keys, four columns a lane. kHeld: in registers, else where load()
/// has been told, in shared memory.
template <int kQuads, bool kHeld>
struct StateShare {
  float4 rows[kHeld ? kPartsPerWarp : 1][kQuads][4];
  const float* place;
  std::int32_t key_dim;
  std::int32_t value_dim;
  int warp;
  int column;
  bool is_new;  ///< reads give zeros

  __device__ StateShare(const DeltaNetKernelArgs& args, bool is_new_sequence)
      : key_dim(args.key_dim),
        value_dim(args.value_dim),
        warp(static_cast<int>(threadIdx.x) / kWarpSize),
        column(static_cast<int>(threadIdx.x) % kWarpSize * 4),
        is_new(is_new_sequence) {}
  __device__ int first_key(int part, int quad) const { return quad * kKeyStride + 4 * (warp + part * kWarps); }
  __device__ bool has(int key) const { return key < key_dim && column < value_dim; }
  __device__ float4 read(int key) const { return load_four(place + key * value_dim + column, has(key) && !is_new); }
  __device__ float4 row(int part, int quad, int j) const {
    if constexpr (kHeld) return rows[part][quad][j];
    return read(first_key(part, quad) + j);
  }
  __device__ void load(const float* state) {
    place = state;
    if constexpr (kHeld) {
#pragma unroll
      for (int p = 0; p < kPartsPerWarp; ++p) {
#pragma unroll
        for (int i = 0; i < kQuads * 4; ++i) rows[p][i / 4][i % 4] = read(first_key(p, i / 4) + i % 4);
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
          const float4 old = row(p, i, j);
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
          const float4 old = row(p, i, j);
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

#if __CUDA_ARCH__ >= 900
__device__ unsigned shared_address(const void* pointer) {
  return static_cast<unsigned>(__cvta_generic_to_shared(pointer));
}
#endif

/// A head's state on its way through shared memory. One thread asks; all may wait for its arrival.
struct StateCopy {
  float* held;
  float* state;
  unsigned size_bytes;
  std::uint64_t* arrived;

#if __CUDA_ARCH__ >= 900
  static constexpr unsigned kPieceBytes = 16384;

  __device__ void prepare() const {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(arrived)));
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __device__ void fetch() const {
    const unsigned barrier = shared_address(arrived);
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(size_bytes) : "memory");
    for (unsigned at = 0; at < size_bytes; at += kPieceBytes) {
      asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                       shared_address(held) + at),
                   "l"(reinterpret_cast<const char*>(state) + at), "r"(min(kPieceBytes, size_bytes - at)), "r"(barrier)
                   : "memory");
    }
  }
  __device__ void wait() const {
    asm volatile(
        "{\n.reg .pred done;\nagain:\nmbarrier.try_wait.parity.shared::cta.b64 done, [%0], 0;\n@!done bra again;\n}" ::
            "r"(shared_address(arrived))
        : "memory");
  }
  /// Every thread before the one that calls store(), and a barrier between.
  __device__ static void publish() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
  __device__ void store() const {
    for (unsigned at = 0; at < size_bytes; at += kPieceBytes) {
      asm volatile(
          "cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(reinterpret_cast<char*>(state) + at),
          "r"(shared_address(held) + at), "r"(min(kPieceBytes, size_bytes - at))
          : "memory");
    }
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
  }
  __device__ static void finish() { asm volatile("cp.async.bulk.wait_group 0;" ::: "memory"); }
#else
  __device__ void prepare() const {}
  __device__ void fetch() const {}
  __device__ void wait() const {}
  __device__ static void publish() {}
  __device__ void store() const {}
  __device__ static void finish() {}
#endif
};

/// A block a value head of a slice. kBulk: the state passes through shared memory.
template <int kQuads, bool kBulk>
__global__ void __launch_bounds__(kThreads, kBulk ? kBulkBlocksPerSm : kBlocksPerSm)
    step_kernel(const __grid_constant__ DeltaNetKernelArgs args) {
  extern __shared__ __align__(128) float held[];
  __shared__ __align__(16) StepShared shared;
  __shared__ std::uint64_t arrived;
  release_successor();
  const DeviceSlice slice = args.step.slices[blockIdx.y];
  const auto head = static_cast<std::int32_t>(blockIdx.x);
  const int thread = static_cast<int>(threadIdx.x);
  const auto state_bytes = static_cast<unsigned>(args.key_dim * args.value_dim) * static_cast<unsigned>(sizeof(float));
  float* const state = args.state_of(slice.state_slot, head);
  const StateCopy copy = {held, state, state_bytes, &arrived};
  if (kBulk && thread == 0) copy.prepare();
  if (kBulk) __syncthreads();
  wait_for_predecessor();
  if (slice.num_tokens != 1) return;
  const bool is_new = slice.past == 0;
  if (kBulk && !is_new && thread == 0) copy.fetch();
  const std::int64_t row = slice.first_row;
  StateShare<kQuads, !kBulk> share(args, is_new);
  if (!kBulk) share.load(state);
  const float* const k = args.keys_of(row, args.key_head_of(head));
  const DeltaNetGates gates = args.gates[row * args.value_heads + head];
  const bool has_column = thread < args.value_dim;
  const float v = has_column ? args.values_of(row, head)[thread] : 0.0F;
  const std::int64_t at = std::int64_t{head} * args.value_dim + thread;
  const float z = has_column ? args.z.data[row * args.z.stride + at] : 0.0F;
  if (kBulk) {
    if (!is_new) copy.wait();
    share.load(held);
  }
  float4 by_key;
  float4 by_query;
  share.products(k, k + args.padded_keys, by_key, by_query);
  *reinterpret_cast<float4*>(shared.by_key[share.warp] + share.column) = by_key;
  *reinterpret_cast<float4*>(shared.by_query[share.warp] + share.column) = by_query;
  __syncthreads();
  if (thread < kMostColumns) {
    const float delta = delta_of(gates, column_sum(shared.by_key, thread), v);
    shared.delta[thread] = delta;
    shared.output[thread] = output_of(gates, column_sum(shared.by_query, thread), delta);
  }
  __syncthreads();
  share.update(k, gates.decay, *reinterpret_cast<const float4*>(shared.delta + share.column), kBulk ? held : state);
  if (kBulk) {
    StateCopy::publish();
    __syncthreads();
    if (thread == 0) copy.store();
  }
  if (thread < kMostColumns) {
    const float factor = norm_factor(shared.output, args.value_dim, args.eps);
    if (has_column) {
      args.y.data[row * args.y.stride + at] = gated_output(args.norm[thread], shared.output[thread], factor, z);
    }
  }
  if (kBulk && thread == 0) StateCopy::finish();
}

template <int kQuads>
Status step(const CudaContext& context, const DeltaNetKernelArgs& args) {
  const dim3 grid(static_cast<unsigned>(args.value_heads), static_cast<unsigned>(args.step.num_slices));
  constexpr std::size_t kPlainBytes = 32 << 10;  // beside what the kernel has anyway; launch() asks for 48 KiB and more
  const std::size_t state_bytes =
      static_cast<std::size_t>(args.key_dim) * static_cast<std::size_t>(args.value_dim) * sizeof(float);
  const std::size_t bulk_bytes =
      state_bytes > kPlainBytes ? std::max(state_bytes, (48 << 10) + sizeof(float4)) : state_bytes;
  const std::int64_t wave = std::int64_t{kBulkBlocksPerSm} * context.num_sms;
  // Code for other architectures has no bulk copies.
  constexpr bool kIsBuilt = std::string_view(VERNIER_CUDA_ARCHITECTURES).find("90a") != std::string_view::npos;
  if (kIsBuilt && context.capability == 90 && std::int64_t{grid.x} * grid.y >= kBulkWaves * wave) {
    return launch(context, {grid, dim3(kThreads), bulk_bytes}, step_kernel<kQuads, true>, args);
  }
  return launch(context, {grid, dim3(kThreads)}, step_kernel<kQuads, false>, args);
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
