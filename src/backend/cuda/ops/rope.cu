// Head norms, rotation, and the way into the KV cache. A block takes a token, or some of its heads where there are few
// tokens; a warp takes a head at a time.
#include "backend/cuda/ops/kv_page.cuh"
#include "backend/cuda/ops/launch.h"
#include "backend/cuda/ops/math.cuh"
#include "backend/cuda/ops/ops.h"

namespace vernier::cuda {
namespace {

constexpr int kWarps = 8;

struct Rotation {
  const double* frequencies;  ///< [pairs]
  std::int32_t pairs;
  std::int32_t offset;
  float magnitude;
  bool halves;
};

struct RopeKernelArgs {
  MatrixView q;
  MatrixView k;
  MatrixView v;  ///< data null: only q is processed
  std::int32_t num_heads;
  std::int32_t num_kv_heads;
  std::int32_t head_dim;
  const float* q_norm;  ///< null: none
  const float* k_norm;
  bool normalize_v;
  float eps;
  Rotation rotation;
  StepView step;
  KvLayer kv;
};

/// What a head is normed with before it is rotated.
struct HeadNorm {
  bool normalize;
  const float* weight;  ///< null: ones
  float eps;
};

/// Copies a head into the warp's shared memory, normed.
__device__ void load_head(const float* from, float* head, int dim, const HeadNorm& norm) {
  constexpr int kHeld = 8;
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  float weight[kHeld];  // asked for together with the head: the sum's end is too late
  float squares = 0.0F;
#pragma unroll
  for (int i = 0; i < kHeld; ++i) {
    const int d = lane + i * kWarpSize;
    weight[i] = norm.weight != nullptr && d < dim ? norm.weight[d] : 1.0F;
    const float value = d < dim ? from[d] : 0.0F;
    if (d < dim) head[d] = value;
    squares += value * value;
  }
  for (int d = lane + kHeld * kWarpSize; d < dim; d += kWarpSize) {
    head[d] = from[d];
    squares += head[d] * head[d];
  }
  if (norm.normalize) {
    const float factor = 1.0F / sqrtf(warp_sum(squares) / static_cast<float>(dim) + norm.eps);
#pragma unroll
    for (int i = 0; i < kHeld; ++i) {
      const int d = lane + i * kWarpSize;
      if (d < dim) head[d] *= factor * weight[i];
    }
    for (int d = lane + kHeld * kWarpSize; d < dim; d += kWarpSize) {
      head[d] *= factor * (norm.weight != nullptr ? norm.weight[d] : 1.0F);
    }
  }
  __syncwarp();
}

/// `angles` holds cosine and sine of each pair.
__device__ void rotate_head(const Rotation& rotation, const float2* angles, float* head) {
  for (int j = static_cast<int>(threadIdx.x) % kWarpSize; j < rotation.pairs; j += kWarpSize) {
    float& first = head[rotation.halves ? j : 2 * j];
    float& second = head[rotation.halves ? j + rotation.offset : 2 * j + 1];
    const float2 angle = angles[j];
    const float rotated = first * angle.x - second * angle.y;
    second = second * angle.x + first * angle.y;
    first = rotated;
  }
  __syncwarp();
}

/// Cosine and sine of each pair, by all threads of the block.
__device__ void make_angles(const Rotation& rotation, std::int32_t position, float2* angles) {
  for (int j = static_cast<int>(threadIdx.x); j < rotation.pairs; j += static_cast<int>(blockDim.x)) {
    double sine = 0.0;
    double cosine = 0.0;
    sincos(static_cast<double>(position) * rotation.frequencies[j], &sine, &cosine);
    const double magnitude = rotation.magnitude;
    angles[j] = {static_cast<float>(cosine * magnitude), static_cast<float>(sine * magnitude)};
  }
}

template <class Cell>
__device__ void store_head(const float* head, void* elements, std::int64_t index, int dim, float scale) {
  auto* const to = static_cast<typename Cell::Code*>(elements) + index;
  for (int d = static_cast<int>(threadIdx.x) % kWarpSize; d < dim; d += kWarpSize) to[d] = Cell::store(head[d], scale);
}

template <class Cell>
__global__ void __launch_bounds__(kWarps* kWarpSize) rope_kernel(const __grid_constant__ RopeKernelArgs args) {
  release_successor();
  extern __shared__ float2 angles[];
  const std::int64_t row = blockIdx.x;
  // No kernel writes the step's tables: position and angles need not wait.
  const std::int32_t slice_index = args.step.slice_of_row[row];
  const DeviceSlice slice = slice_index < 0 ? DeviceSlice{} : args.step.slices[slice_index];
  const std::int32_t position = slice.past + static_cast<std::int32_t>(row) - slice.first_row;
  const Rotation& rotation = args.rotation;
  make_angles(rotation, position, angles);
  wait_for_predecessor();
  if (slice_index < 0) return;
  __syncthreads();
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
  const int dim = args.head_dim;
  float* const head = reinterpret_cast<float*>(angles + rotation.pairs) + warp * dim;
  const bool stores = args.v.data != nullptr;
  const int num_items = args.num_heads + (stores ? 2 * args.num_kv_heads : 0);
  const int stride = kWarps * static_cast<int>(gridDim.y);
  for (int item = static_cast<int>(blockIdx.y) * kWarps + warp; item < num_items; item += stride) {
    __syncwarp();
    const bool is_query = item < args.num_heads;
    const int kv_item = item - args.num_heads;
    const bool is_value = kv_item >= args.num_kv_heads;
    const int h = is_query ? item : is_value ? kv_item - args.num_kv_heads : kv_item;
    const MatrixView& m = is_query ? args.q : is_value ? args.v : args.k;
    float* const from = m.data + row * m.stride + std::int64_t{h} * dim;
    const float* const weight = is_query ? args.q_norm : is_value ? nullptr : args.k_norm;
    load_head(from, head, dim, {is_value ? args.normalize_v : weight != nullptr, weight, args.eps});
    if (!is_value) rotate_head(rotation, angles, head);
    if (is_query) {
      for (int d = static_cast<int>(threadIdx.x) % kWarpSize; d < dim; d += kWarpSize) from[d] = head[d];
      continue;
    }
    const std::int64_t index = kv_index(args.kv, args.step, slice, position, h);
    store_head<Cell>(head, is_value ? args.kv.values : args.kv.keys, index, dim,
                     is_value ? args.kv.value_scale : args.kv.key_scale);
  }
}

Result<Rotation> make_rotation(CudaContext& context, const RopeTable* rope) {
  if (rope == nullptr || rope->inverse_frequencies.empty()) return Rotation{nullptr, 0, 0, 1.0F, true};
  VN_ASSIGN(const double* frequencies, context.tables.frequencies(rope->inverse_frequencies));
  const auto pairs = static_cast<std::int32_t>(rope->inverse_frequencies.size());
  return Rotation{frequencies, pairs, rope->pair_offset != 0 ? rope->pair_offset : pairs, rope->magnitude,
                  rope->pairing == RopePairing::kHalves};
}

}  // namespace

Status rope_and_store_kv(CudaContext& context, const RopeStoreArgs& args) {
  VN_ASSIGN(const Rotation rotation, make_rotation(context, args.rope));
  VN_ASSIGN(const StepView step, context.tables.step(args.slices, args.q.rows));
  const RopeKernelArgs kernel_args = {.q = args.q,
                                      .k = args.k,
                                      .v = args.v,
                                      .num_heads = args.num_heads,
                                      .num_kv_heads = args.num_kv_heads,
                                      .head_dim = args.head_dim,
                                      .q_norm = args.q_norm.empty() ? nullptr : args.q_norm.data(),
                                      .k_norm = args.k_norm.empty() ? nullptr : args.k_norm.data(),
                                      .normalize_v = args.normalize_v,
                                      .eps = args.eps,
                                      .rotation = rotation,
                                      .step = step,
                                      .kv = args.kv};
  const std::size_t shared = static_cast<std::size_t>(rotation.pairs) * sizeof(float2) +
                             static_cast<std::size_t>(kWarps * args.head_dim) * sizeof(float);
  if (shared > context.max_shared_bytes) {
    return fail(ErrorCode::kUnsupported, "cuda: rope_and_store_kv: heads of {} are too wide", args.head_dim);
  }
  // Every block computes the angles again, which pays only while there are multiprocessors to spare.
  const int num_items = args.num_heads + (args.v.data != nullptr ? 2 * args.num_kv_heads : 0);
  const int blocks = args.q.rows * 8 < context.num_sms ? (num_items + kWarps - 1) / kWarps : 1;
  const LaunchShape shape = {dim3(static_cast<unsigned>(args.q.rows), static_cast<unsigned>(blocks)),
                             dim3(kWarps * kWarpSize), shared};
  return visit_cell(args.kv, [&]<class Cell>(Cell) { return launch(context, shape, rope_kernel<Cell>, kernel_args); });
}

}  // namespace vernier::cuda
