#include "backend/check_args.h"
#include "backend/reference/products.h"
#include "backend/reference/reference_backend.h"
#include "backend/routing.h"

namespace vernier {
namespace {

/// The bias of row n of expert e, 0 where there is none.
float bias_of(const std::vector<std::span<const float>>& biases, std::int64_t e, std::int64_t n) {
  if (biases.empty() || biases[static_cast<std::size_t>(e)].empty()) return 0.0F;
  return biases[static_cast<std::size_t>(e)][static_cast<std::size_t>(n)];
}

}  // namespace

Status ReferenceBackend::route_experts(const RouteArgs& args) {
  VN_TRY(check_args(args));
  if (args.norm.present()) {
    VN_TRY(rms_norm(norm_of(args)));
    return route_experts(after_norm(args));
  }
  const std::int64_t num_experts = args.router->rows;
  InputRows x(args.x.rows, args.x.cols);
  for (std::int64_t m = 0; m < x.count; ++m) x.set(m, args.x.row(m), Precision::kF32);
  if (x.count == 0) return {};
  std::vector<float> logits(static_cast<std::size_t>(x.count * num_experts));
  for_each_product(pool_, *args.router, x, [&](std::int64_t n, std::int64_t m, float product) {
    if (!args.bias.empty()) product += args.bias[static_cast<std::size_t>(n)];
    logits[static_cast<std::size_t>(m * num_experts + n)] = product;
  });
  for (std::int64_t m = 0; m < x.count; ++m) {
    const std::span<const float> row(logits.data() + m * num_experts, static_cast<std::size_t>(num_experts));
    choose_experts(args, row, args.ids + m * args.top_k, args.weights + m * args.top_k);
  }
  return {};
}

Status ReferenceBackend::expert_mlp(const ExpertMlpArgs& args) {
  VN_TRY(check_args(args));
  const ExpertWeights& experts = *args.experts;
  const auto num_experts = static_cast<std::int64_t>(experts.gate.size());
  const std::int64_t dim = args.x.cols;
  const std::int64_t ff = experts.gate[0].rows;
  const std::size_t num_choices = static_cast<std::size_t>(args.x.rows * args.top_k);
  VN_ASSIGN(const ExpertUses groups, group_by_expert({args.ids, num_choices}, num_experts));

  std::vector<float> results(num_choices * static_cast<std::size_t>(dim));  // [tokens, top_k, dim]
  for (std::int64_t e = 0; e < num_experts; ++e) {
    const std::int64_t first = groups.first_use[static_cast<std::size_t>(e)];
    const std::int64_t count = groups.first_use[static_cast<std::size_t>(e) + 1] - first;
    if (count == 0) continue;
    const std::int64_t* uses = groups.uses.data() + first;
    InputRows x(count, dim);
    for (std::int64_t i = 0; i < count; ++i) x.set(i, args.x.row(uses[i] / args.top_k), precision_);

    std::vector<float> gate(static_cast<std::size_t>(count * ff));
    std::vector<float> up(gate.size());
    const auto index = static_cast<std::size_t>(e);
    for_each_product(pool_, experts.gate[index], x, [&](std::int64_t n, std::int64_t m, float product) {
      gate[static_cast<std::size_t>(m * ff + n)] = product + bias_of(experts.gate_bias, e, n);
    });
    for_each_product(pool_, experts.up[index], x, [&](std::int64_t n, std::int64_t m, float product) {
      up[static_cast<std::size_t>(m * ff + n)] = product + bias_of(experts.up_bias, e, n);
    });
    for (std::size_t i = 0; i < gate.size(); ++i) {
      gate[i] = static_cast<float>(activate(args.activation, gate[i], up[i]));
    }

    InputRows hidden(count, ff);
    for (std::int64_t i = 0; i < count; ++i) hidden.set(i, gate.data() + i * ff, precision_);
    for_each_product(pool_, experts.down[index], hidden, [&](std::int64_t n, std::int64_t m, float product) {
      results[static_cast<std::size_t>(uses[m] * dim + n)] = product + bias_of(experts.down_bias, e, n);
    });
  }

  for (std::int64_t t = 0; t < args.x.rows; ++t) {
    for (std::int64_t j = 0; j < args.top_k; ++j) {
      const std::int64_t use = t * args.top_k + j;
      if (args.ids[use] == -1) continue;
      for (std::int64_t i = 0; i < dim; ++i) {
        args.y.row(t)[i] += args.weights[use] * results[static_cast<std::size_t>(use * dim + i)];
      }
    }
  }
  return {};
}

}  // namespace vernier
