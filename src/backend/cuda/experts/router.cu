#include "backend/cuda/experts/router.h"
#include "backend/cuda/linear/product_job.cuh"
#include "backend/cuda/predecessor.cuh"
#include "format/format_list.h"

namespace vernier::cuda {
namespace {

constexpr int kWarp = 32;
constexpr int kWarps = 8;
constexpr unsigned kAllLanes = 0xFFFFFFFFU;

/// A warp an expert and token; its lanes take eight columns in every 256.
template <class F>
__global__ void __launch_bounds__(kWarp* kWarps) router_kernel(const __grid_constant__ RouterLogits args) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int expert = static_cast<int>(blockIdx.x) * kWarps + static_cast<int>(threadIdx.x) / kWarp;
  const std::int64_t token = blockIdx.y;
  release_successor();
  wait_for_predecessor();
  const WeightRef& w = args.router.weight;
  if (expert >= w.rows) return;
  const std::byte* codes = w.codes + expert * w.row_stride;
  const float* x = args.x + token * args.x_stride;
  using Code = typename F::Element::Code;
  constexpr int kEach = 8;
  float sum = 0.0F;
#pragma unroll 2
  for (int k = lane * kEach; k < w.cols; k += kWarp * kEach) {
    // Rows of a placed weight are whole elements from an aligned beginning.
    const Code* from = reinterpret_cast<const Code*>(codes) + k;
    Code row[kEach];
    float input[kEach];
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const bool inside = k + i < w.cols;
      row[i] = inside ? from[i] : Code{0};
      input[i] = inside ? x[k + i] : 0.0F;
    }
#pragma unroll
    for (int i = 0; i < kEach; ++i) sum = __fmaf_rn(F::Element::decode(row[i]), input[i], sum);
  }
  for (int step = kWarp / 2; step > 0; step /= 2) sum = __fadd_rn(sum, __shfl_xor_sync(kAllLanes, sum, step));
  if (lane == 0) args.logits[token * w.rows + expert] = finish_product(args.router, expert, sum, nullptr);
}

/// The better of two candidates, each an expert and its logit: the larger logit, of equal ones the lower expert.
struct Candidate {
  float logit;
  int expert;
};
__device__ bool is_better(const Candidate& a, const Candidate& b) {
  if (b.expert < 0) return a.expert >= 0;
  return a.expert >= 0 && (a.logit > b.logit || (a.logit == b.logit && a.expert < b.expert));
}

/// What a scan in the order of experts ends with that moves on only to larger logits: the first expert left if its
/// logit is NaN, else the largest.
__device__ int choose_next(const float* logits, int experts, const std::uint32_t* taken, int lane) {
  Candidate best = {0.0F, -1};
  int first = experts;
  for (int e = lane; e < experts; e += kWarp) {
    if ((taken[e / 32] >> (e % 32) & 1U) != 0) continue;
    first = min(first, e);
    const Candidate own = {logits[e], e};
    if (own.logit == own.logit && is_better(own, best)) best = own;
  }
  for (int step = kWarp / 2; step > 0; step /= 2) {
    const Candidate other = {__shfl_xor_sync(kAllLanes, best.logit, step),
                             __shfl_xor_sync(kAllLanes, best.expert, step)};
    if (is_better(other, best)) best = other;
    first = min(first, __shfl_xor_sync(kAllLanes, first, step));
  }
  const float first_logit = logits[first];
  return first_logit != first_logit ? first : best.expert;
}

/// A warp a token. Shared memory: its logits, a bit an expert, set once it is taken, and those taken.
__global__ void __launch_bounds__(kWarp) choose_kernel(const __grid_constant__ ChooseExperts args) {
  extern __shared__ float shared_logits[];
  release_successor();
  wait_for_predecessor();
  const int lane = static_cast<int>(threadIdx.x);
  const std::int64_t token = blockIdx.x;
  float* const logits = shared_logits;
  auto* const taken = reinterpret_cast<std::uint32_t*>(shared_logits + args.experts);
  auto* const chosen = reinterpret_cast<std::int32_t*>(taken + (args.experts + 31) / 32);
  for (int e = lane; e < args.experts; e += kWarp) logits[e] = args.logits[token * args.experts + e];
  std::int32_t* ids = args.ids + token * args.top_k;
  for (int i = lane; i < (args.experts + 31) / 32; i += kWarp) taken[i] = 0;
  __syncwarp();
  for (int j = 0; j < args.top_k; ++j) {
    const int best = choose_next(logits, args.experts, taken, lane);
    __syncwarp();
    if (lane == 0) {
      taken[best / 32] |= 1U << (best % 32);
      chosen[j] = best;
      ids[j] = best;
    }
    __syncwarp();
  }
  const double largest = logits[chosen[0]];
  double total = 0.0;
  const int count = args.softmax_all ? args.experts : args.top_k;
  for (int i = lane; i < count; i += kWarp) total += exp(double{logits[args.softmax_all ? i : chosen[i]]} - largest);
  for (int step = kWarp / 2; step > 0; step /= 2) total += __shfl_xor_sync(kAllLanes, total, step);
  for (int j = lane; j < args.top_k; j += kWarp) {
    const int expert = chosen[j];
    float weight = static_cast<float>(exp(double{logits[expert]} - largest) / total);
    if (args.expert_scale != nullptr) weight = __fmul_rn(weight, args.expert_scale[expert]);
    args.weights[token * args.top_k + j] = weight;
  }
}

}  // namespace

bool has_router_kernel(FormatId format, const WeightRef& router) {
  return format_info(format).has_plain && router.packing == Packing::kNone;
}

cudaError_t router_logits(FormatId format, const RouterLogits& args, cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>((args.router.weight.rows + kWarps - 1) / kWarps),
                  static_cast<unsigned>(args.tokens));
  cudaError_t error = cudaErrorInvalidValue;
  visit_format(format, [&]<class F>(std::type_identity<F>) {
    if constexpr (HasPlain<F>) error = launch_dependent(router_kernel<F>, grid, kWarp * kWarps, 0, stream, args);
  });
  return error;
}

cudaError_t choose_experts(const ChooseExperts& args, cudaStream_t stream) {
  const std::size_t bytes =
      static_cast<std::size_t>(args.experts + (args.experts + 31) / 32 + args.top_k) * sizeof(float);
  return launch_dependent(choose_kernel, dim3(static_cast<unsigned>(args.tokens)), kWarp, bytes, stream, args);
}

}  // namespace vernier::cuda
