// Head norms, rotation, and the way into the KV cache. A block takes a token, or some of its heads where there are few
// tokens. Usual heads go by fours of numbers, several heads of a warp on their way at once; others number by number.
#include <algorithm>

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

/// Which of a head's numbers a lane has, by fours: number `lane`, and each `lanes` further.
struct LaneShare {
  int lane;
  int lanes;
  int dim;
  float eps;
};

/// Norms a head of which the lanes of a group have kFours fours each. All lanes of the warp call it.
template <int kFours>
__device__ inline void norm_fours(float4 (&values)[kFours], const float* weight, bool normalizes,
                                  const LaneShare& share) {
  float squares = 0.0F;
#pragma unroll
  for (int f = 0; f < kFours; ++f) {
    const float4& four = values[f];
    squares += four.x * four.x + four.y * four.y + (four.z * four.z + four.w * four.w);
  }
#pragma unroll
  for (int offset = kWarpSize / 2; offset > 0; offset /= 2) {
    const float other = __shfl_xor_sync(0xFFFFFFFFU, squares, offset);
    if (offset < share.lanes) squares += other;
  }
  if (!normalizes) return;
  const float factor = 1.0F / sqrtf(squares / static_cast<float>(share.dim) + share.eps);
#pragma unroll
  for (int f = 0; f < kFours; ++f) {
    float4 scale = {1.0F, 1.0F, 1.0F, 1.0F};
    if (weight != nullptr) {
      scale = *reinterpret_cast<const float4*>(weight + (share.lane + f * share.lanes) * 4);
    }
    float4& four = values[f];
    four = {four.x * (factor * scale.x), four.y * (factor * scale.y), four.z * (factor * scale.z),
            four.w * (factor * scale.w)};
  }
}

/// Neighbouring numbers of the cache.
template <class Code>
struct alignas(4 * sizeof(Code)) FourCodes {
  Code code[4];
};

/// Numbers d to d + 3 of a head, rotated. `head`: all of its numbers.
__device__ inline float4 rotate_four(const Rotation& rotation, const float2* angles, const float* head, int d,
                                     const float4& own) {
  if (!rotation.halves) {
    if (d >= 2 * rotation.pairs) return own;
    const float4 two = *reinterpret_cast<const float4*>(angles + d / 2);
    return {own.x * two.x - own.y * two.y, own.y * two.x + own.x * two.y,  //
            own.z * two.z - own.w * two.w, own.w * two.z + own.z * two.w};
  }
  const bool is_first = d < rotation.pairs;
  const int j = is_first ? d : d - rotation.offset;
  if (j < 0 || j >= rotation.pairs) return own;
  const float4 other = *reinterpret_cast<const float4*>(head + (is_first ? d + rotation.offset : j));
  const float4 low = *reinterpret_cast<const float4*>(angles + j);
  const float4 high = *reinterpret_cast<const float4*>(angles + j + 2);
  const float sign = is_first ? -1.0F : 1.0F;
  return {own.x * low.x + sign * other.x * low.y, own.y * low.z + sign * other.y * low.w,
          own.z * high.x + sign * other.z * high.y, own.w * high.z + sign * other.w * high.w};
}

/// Heads of 64 or 128 numbers (kFours = 1) or 256 (2): so many fours a lane has of a head. Heads of 64 go two by two.
template <class Cell, int kFours>
__global__ void __launch_bounds__(kWarps* kWarpSize) rope_fours_kernel(const __grid_constant__ RopeKernelArgs args) {
  constexpr int kAtOnce = 4 / kFours;  // heads
  constexpr int kMostDim = kFours * kWarpSize * 4;
  using Code = typename Cell::Code;
  release_successor();
  extern __shared__ float4 own_memory[];
  __shared__ float4 heads[kWarps][kMostDim / 4];
  auto* const angles = reinterpret_cast<float2*>(own_memory);
  const std::int64_t row = blockIdx.x;
  // No kernel writes the step's tables: position, place and angles need not wait.
  const std::int32_t slice_index = args.step.slice_of_row[row];
  const DeviceSlice slice = slice_index < 0 ? DeviceSlice{} : args.step.slices[slice_index];
  const std::int32_t position = slice.past + static_cast<std::int32_t>(row) - slice.first_row;
  const bool stores = args.v.data != nullptr;
  const std::int64_t place = stores && slice_index >= 0 ? kv_index(args.kv, args.step, slice, position, 0) : 0;
  make_angles(args.rotation, position, angles);
  wait_for_predecessor();
  if (slice_index < 0) return;
  __syncthreads();
  const int dim = args.head_dim;
  const auto warp = static_cast<int>(threadIdx.x / kWarpSize);
  const int lanes = min(kWarpSize, dim / 4);  // of a head
  const int lane = static_cast<int>(threadIdx.x % kWarpSize) & (lanes - 1);
  const int side_by_side = kMostDim / kFours / 4 / lanes;
  const int beside = static_cast<int>(threadIdx.x % kWarpSize) / lanes;
  const int num_items = args.num_heads + (stores ? 2 * args.num_kv_heads : 0);
  const int stride = kWarps * side_by_side * static_cast<int>(gridDim.y);
  auto* const head = reinterpret_cast<float*>(heads[warp]) + beside * dim;
#pragma unroll 1
  for (int first = (static_cast<int>(blockIdx.y) * kWarps + warp) * side_by_side; first < num_items;
       first += stride * kAtOnce) {
    float4 values[kAtOnce][kFours];
#pragma unroll
    for (int u = 0; u < kAtOnce; ++u) {
      const int item = first + beside + u * stride;
      const int kv_item = item - args.num_heads;
      const bool is_value = kv_item >= args.num_kv_heads;
      const MatrixView& m = kv_item < 0 ? args.q : is_value ? args.v : args.k;
      const int h = kv_item < 0 ? item : is_value ? kv_item - args.num_kv_heads : kv_item;
      const float* const from = m.data + row * m.stride + h * dim;
#pragma unroll
      for (int f = 0; f < kFours; ++f) {
        values[u][f] = item < num_items ? *reinterpret_cast<const float4*>(from + (lane + f * lanes) * 4) : float4{};
      }
    }
#pragma unroll
    for (int u = 0; u < kAtOnce; ++u) {
      const int item = first + beside + u * stride;
      const int kv_item = item - args.num_heads;
      const bool is_query = kv_item < 0;
      const bool is_value = kv_item >= args.num_kv_heads;
      const float* const weight = is_query ? args.q_norm : is_value ? nullptr : args.k_norm;
      // Whether heads are normed is the same for all lanes where heads go side by side only if all kinds are.
      const bool normalizes = is_value ? args.normalize_v : weight != nullptr;
      if (args.q_norm != nullptr || args.k_norm != nullptr || args.normalize_v) {
        norm_fours<kFours>(values[u], normalizes ? weight : nullptr, normalizes, {lane, lanes, dim, args.eps});
      }
      __syncwarp();
#pragma unroll
      for (int f = 0; f < kFours; ++f) *reinterpret_cast<float4*>(head + (lane + f * lanes) * 4) = values[u][f];
      __syncwarp();
      if (item >= num_items) continue;
      const int h = is_query ? item : is_value ? kv_item - args.num_kv_heads : kv_item;
#pragma unroll
      for (int f = 0; f < kFours; ++f) {
        const int d = (lane + f * lanes) * 4;
        const float4 four = is_value ? values[u][f] : rotate_four(args.rotation, angles, head, d, values[u][f]);
        if (is_query) {
          *reinterpret_cast<float4*>(args.q.data + row * args.q.stride + h * dim + d) = four;
        } else {
          const float scale = is_value ? args.kv.value_scale : args.kv.key_scale;
          auto* const to = static_cast<Code*>(is_value ? args.kv.values : args.kv.keys) + place + h * dim + d;
          *reinterpret_cast<FourCodes<Code>*>(to) = {{Cell::store(four.x, scale), Cell::store(four.y, scale),
                                                      Cell::store(four.z, scale), Cell::store(four.w, scale)}};
        }
      }
    }
  }
}

Result<Rotation> make_rotation(CudaContext& context, const RopeTable* rope) {
  if (rope == nullptr || rope->inverse_frequencies.empty()) return Rotation{nullptr, 0, 0, 1.0F, true};
  VN_ASSIGN(const double* frequencies, context.tables.frequencies(rope->inverse_frequencies));
  const auto pairs = static_cast<std::int32_t>(rope->inverse_frequencies.size());
  return Rotation{frequencies, pairs, rope->pair_offset != 0 ? rope->pair_offset : pairs, rope->magnitude,
                  rope->pairing == RopePairing::kHalves};
}

bool is_aligned(const void* data) { return reinterpret_cast<std::uintptr_t>(data) % sizeof(float4) == 0; }

/// Whether rope_fours_kernel can do it.
bool goes_by_fours(const RopeKernelArgs& args) {
  if (args.head_dim != 64 && args.head_dim != 128 && args.head_dim != 256) return false;
  if (args.rotation.pairs % 4 != 0 || args.rotation.offset % 4 != 0) return false;
  for (const MatrixView& m : {args.q, args.k, args.v}) {
    if (m.data != nullptr && (m.stride % 4 != 0 || !is_aligned(m.data))) return false;
  }
  return is_aligned(args.q_norm) && is_aligned(args.k_norm) && is_aligned(args.kv.keys) && is_aligned(args.kv.values);
}

/// Blocks that share the heads of a token, a warp having one at a time: as many as there is room for.
int choose_blocks(const CudaContext& context, std::int64_t rows, int num_items) {
  constexpr int kBlocksAtOnce = 4;  // of a multiprocessor
  const int most = (num_items + kWarps - 1) / kWarps;
  return static_cast<int>(std::clamp<std::int64_t>(std::int64_t{kBlocksAtOnce} * context.num_sms / rows, 1, most));
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
  const int num_items = args.num_heads + (args.v.data != nullptr ? 2 * args.num_kv_heads : 0);
  if (goes_by_fours(kernel_args)) {
    // Every block computes the angles again, which pays only while there are multiprocessors to spare.
    const int blocks = choose_blocks(context, args.q.rows, args.head_dim == 64 ? (num_items + 1) / 2 : num_items);
    return visit_cell(args.kv, [&]<class Cell>(Cell) {
      const LaunchShape shape = {dim3(static_cast<unsigned>(args.q.rows), static_cast<unsigned>(blocks)),
                                 dim3(kWarps * kWarpSize), static_cast<std::size_t>(rotation.pairs) * sizeof(float2)};
      if (args.head_dim == 256) return launch(context, shape, rope_fours_kernel<Cell, 2>, kernel_args);
      return launch(context, shape, rope_fours_kernel<Cell, 1>, kernel_args);
    });
  }
  const std::size_t shared = static_cast<std::size_t>(rotation.pairs) * sizeof(float2) +
                             static_cast<std::size_t>(kWarps * args.head_dim) * sizeof(float);
  if (shared > context.max_shared_bytes) {
    return fail(ErrorCode::kUnsupported, "cuda: rope_and_store_kv: heads of {} are too wide", args.head_dim);
  }
  const int blocks = choose_blocks(context, args.q.rows, num_items);
  const LaunchShape shape = {dim3(static_cast<unsigned>(args.q.rows), static_cast<unsigned>(blocks)),
                             dim3(kWarps * kWarpSize), shared};
  return visit_cell(args.kv, [&]<class Cell>(Cell) { return launch(context, shape, rope_kernel<Cell>, kernel_args); });
}

}  // namespace vernier::cuda
