#include <algorithm>

#include "backend/cuda/experts/experts.h"
#include "backend/cuda/experts/router.h"
#include "backend/cuda/linear/multiply.h"
#include "backend/cuda/linear/placed_weight.h"
#include "backend/cuda/linear/product.h"

namespace vernier::cuda {
namespace {

/// Tokens routed at a time: a grid's second dimension ends at 65535.
constexpr std::int64_t kTokensPerChunk = 32768;

Status compute_logits(CudaContext& context, const RouteArgs& args, float* logits) {
  MatrixRef router;
  VN_ASSIGN(router.weight, weight_ref(*args.router));
  router.bias = args.bias.empty() ? nullptr : args.bias.data();
  if (has_router_kernel(args.router->format, router.weight)) {
    VN_CUDA(router_logits(
        args.router->format,
        {.router = router, .x = args.x.data, .x_stride = args.x.stride, .tokens = args.x.rows, .logits = logits},
        context.stream));
    return {};
  }
  LinearBatch batch;
  batch.count = 1;
  batch.tokens = static_cast<int>(args.x.rows);
  batch.x = {.data = args.x.data, .stride = args.x.stride, .terms = 3};
  batch.matrix[0] = router;
  batch.y[0] = logits;
  batch.y_stride[0] = args.router->rows;
  return multiply(context, batch);
}

}  // namespace

Status route_experts(CudaContext& context, const RouteArgs& args) {
  const std::int64_t experts = args.router->rows;
  for (std::int64_t first = 0; first < args.x.rows; first += kTokensPerChunk) {
    RouteArgs chunk = args;
    chunk.x = args.x.slice_rows(first, std::min(kTokensPerChunk, args.x.rows - first));
    const auto count = static_cast<std::size_t>(chunk.x.rows * experts);
    VN_ASSIGN(void* const logits, context.scratch.get(ScratchSlot::kRouterLogits, count * sizeof(float)));
    VN_TRY(compute_logits(context, chunk, static_cast<float*>(logits)));
    VN_CUDA(choose_experts({.logits = static_cast<const float*>(logits),
                            .tokens = chunk.x.rows,
                            .experts = static_cast<std::int32_t>(experts),
                            .top_k = args.top_k,
                            .softmax_all = args.rule == RoutingRule::kSoftmaxAll,
                            .expert_scale = args.expert_scale.empty() ? nullptr : args.expert_scale.data(),
                            .ids = args.ids + first * args.top_k,
                            .weights = args.weights + first * args.top_k},
                           context.stream));
  }
  return {};
}

}  // namespace vernier::cuda
