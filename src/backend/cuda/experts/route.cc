#include <algorithm>

#include "backend/cuda/experts/experts.h"
#include "backend/cuda/experts/router.h"
#include "backend/cuda/linear/async.h"
#include "backend/cuda/linear/multiply.h"
#include "backend/cuda/linear/placed_weight.h"
#include "backend/cuda/linear/product.h"
#include "backend/cuda/ops/ops.h"

namespace vernier::cuda {
namespace {

/// Tokens routed at a time: a grid's second dimension ends at 65535.
constexpr std::int64_t kTokensPerChunk = 32768;

/// Logits of a router that route() doesn't take.
Status compute_logits(CudaContext& context, const RouterLogits& args) {
  LinearBatch batch;
  batch.count = 1;
  batch.tokens = static_cast<int>(args.tokens);
  batch.x = {.data = args.x, .stride = args.x_stride, .terms = 3};
  batch.matrix[0] = args.router;
  batch.y[0] = args.logits;
  batch.y_stride[0] = args.router.weight.rows;
  return multiply(context, batch);
}

/// Whether clusters of blocks route; where they can't norm, that is done first, and `logits` are of the result.
Result<bool> routes_in_cluster(CudaContext& context, RouterLogits& logits) {
  const bool can = has_async(context, Packing::kBF16) && has_cluster_route(logits);
  const RowNorm norm = logits.norm;
  if (norm.memory == nullptr || (can && can_norm_row(logits))) return can;
  const std::int64_t cols = logits.router.weight.cols;
  const MatrixView y = {norm.memory, logits.tokens, cols, norm.stride};
  const std::span<const float> weight(norm.weight, norm.weight != nullptr ? static_cast<std::size_t>(cols) : 0);
  VN_TRY(rms_norm(context, {.x = {const_cast<float*>(logits.x), logits.tokens, cols, logits.x_stride},
                            .weight = weight,
                            .eps = norm.eps,
                            .y = y}));
  logits.x = y.data;
  logits.x_stride = y.stride;
  logits.norm = {};
  return can;
}

}  // namespace

Status route_experts(CudaContext& context, const RouteArgs& args) {
  const std::int64_t experts = args.router->rows;
  MatrixRef router;
  VN_ASSIGN(router.weight, weight_ref(*args.router));
  router.bias = args.bias.empty() ? nullptr : args.bias.data();
  for (std::int64_t first = 0; first < args.x.rows; first += kTokensPerChunk) {
    const MatrixView x = args.x.slice_rows(first, std::min(kTokensPerChunk, args.x.rows - first));
    const auto count = static_cast<std::size_t>(router_sums(router.weight, x.rows));
    VN_ASSIGN(void* const memory, context.scratch.get(ScratchSlot::kRouterLogits, count * sizeof(float)));
    RouterLogits logits = {
        .router = router, .x = x.data, .x_stride = x.stride, .tokens = x.rows, .logits = static_cast<float*>(memory)};
    if (args.norm.present()) {
      const MatrixView y = args.norm.y.slice_rows(first, x.rows);
      logits.norm = {args.norm.weight.empty() ? nullptr : args.norm.weight.data(), args.norm.eps, y.data, y.stride};
    }
    VN_ASSIGN(const bool in_cluster, routes_in_cluster(context, logits));
    const ChooseExperts choice = {.logits = logits.logits,
                                  .tokens = x.rows,
                                  .experts = static_cast<std::int32_t>(experts),
                                  .top_k = args.top_k,
                                  .softmax_all = args.rule == RoutingRule::kSoftmaxAll,
                                  .expert_scale = args.expert_scale.empty() ? nullptr : args.expert_scale.data(),
                                  .ids = args.ids + first * args.top_k,
                                  .weights = args.weights + first * args.top_k};
    if (in_cluster) {
      VN_CUDA(route_in_cluster(logits, choice, context.stream));
      continue;
    }
    if (has_route_kernel(args.router->format, router.weight)) {
      VN_ASSIGN(unsigned* const arrivals, context.scratch.counters(x.rows));
      VN_CUDA(route(args.router->format, logits, choice, arrivals, context.stream));
      continue;
    }
    VN_TRY(compute_logits(context, logits));
    VN_CUDA(choose_experts(choice, context.stream));
  }
  return {};
}

}  // namespace vernier::cuda
