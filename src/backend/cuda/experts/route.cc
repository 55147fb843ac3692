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
    const RouterLogits logits = {
        .router = router, .x = x.data, .x_stride = x.stride, .tokens = x.rows, .logits = static_cast<float*>(memory)};
    const ChooseExperts choice = {.logits = logits.logits,
                                  .tokens = x.rows,
                                  .experts = static_cast<std::int32_t>(experts),
                                  .top_k = args.top_k,
                                  .softmax_all = args.rule == RoutingRule::kSoftmaxAll,
                                  .expert_scale = args.expert_scale.empty() ? nullptr : args.expert_scale.data(),
                                  .ids = args.ids + first * args.top_k,
                                  .weights = args.weights + first * args.top_k};
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
