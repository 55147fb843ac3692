#include "backend/reference/reference_backend.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "backend/check_args.h"
#include "backend/odds.h"
#include "backend/reference/products.h"

namespace vernier {
namespace {

double sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }

}  // namespace

double activate(const ActivationSpec& spec, double gate, double up) {
  switch (spec.kind) {
    case Activation::kSilu: return gate * sigmoid(gate) * up;
    case Activation::kGeluTanh: {
      const double inner = std::sqrt(2.0 / std::numbers::pi) * (gate + 0.044715 * gate * gate * gate);
      return 0.5 * gate * (1.0 + std::tanh(inner)) * up;
    }
    case Activation::kClampedSwiglu: {
      const double limit = spec.limit;
      const double g = std::min(gate, limit);
      const double u = std::clamp(up, -limit, limit);
      return g * sigmoid(spec.alpha * g) * (u + 1.0);
    }
  }
  return std::nan("");
}

ReferenceBackend::ReferenceBackend(const BackendOptions& options)
    : precision_(options.precision), pool_(options.num_threads) {}

Status ReferenceBackend::embed(const EmbedArgs& args) {
  VN_TRY(check_args(args));
  const Weight& table = *args.table;
  std::vector<float> row(static_cast<std::size_t>(table.cols));
  for (std::int64_t t = 0; t < args.x.rows; ++t) {
    const std::int32_t token = args.tokens[static_cast<std::size_t>(t)];
    decode_row(table, token, 0, table.cols, row.data());
    for (std::int64_t i = 0; i < table.cols; ++i) {
      args.x.row(t)[i] = table.outer.apply(row[static_cast<std::size_t>(i)], token) * args.multiplier;
    }
  }
  return {};
}

Status ReferenceBackend::rms_norm(const RmsNormArgs& args) {
  VN_TRY(check_args(args));
  const std::int64_t dim = args.x.cols;
  for (std::int64_t t = 0; t < args.x.rows; ++t) {
    float* x = args.x.row(t);
    if (args.residual != nullptr) {
      for (std::int64_t i = 0; i < dim; ++i) x[i] += args.residual->row(t)[i];
    }
    double squares = 0.0;
    for (std::int64_t i = 0; i < dim; ++i) squares += static_cast<double>(x[i]) * x[i];
    const double factor = 1.0 / std::sqrt(squares / static_cast<double>(dim) + args.eps);
    for (std::int64_t i = 0; i < dim; ++i) {
      const double weight = args.weight.empty() ? 1.0 : args.weight[static_cast<std::size_t>(i)];
      args.y.row(t)[i] = static_cast<float>(x[i] * factor * weight);
    }
  }
  return {};
}

Status ReferenceBackend::linear(const LinearArgs& args) {
  VN_TRY(check_args(args));
  if (args.norm.present()) {
    VN_TRY(rms_norm(norm_of(args)));
    return linear(after_norm(args));
  }
  InputRows x(args.x.rows, args.x.cols);
  for (std::int64_t m = 0; m < x.count; ++m) x.set(m, args.x.row(m), precision_);
  if (x.count == 0) return {};
  for (const LinearOutput& output : args.outputs) {
    for_each_product(pool_, *output.weight, x, [&](std::int64_t n, std::int64_t m, float product) {
      if (!output.bias.empty()) product += output.bias[static_cast<std::size_t>(n)];
      float& y = output.y.row(m)[n];
      y = output.accumulate ? y + product : product;
    });
  }
  return {};
}

Status ReferenceBackend::gated_activation(const GatedActivationArgs& args) {
  VN_TRY(check_args(args));
  for (std::int64_t t = 0; t < args.gate.rows; ++t) {
    for (std::int64_t i = 0; i < args.gate.cols; ++i) {
      args.y.row(t)[i] = static_cast<float>(activate(args.spec, args.gate.row(t)[i], args.up.row(t)[i]));
    }
  }
  return {};
}

Status ReferenceBackend::combine(const CombineArgs& args) {
  VN_TRY(check_args(args));
  for (std::int64_t t = 0; t < args.x.rows; ++t) {
    for (std::int64_t i = 0; i < args.x.cols; ++i) {
      float& y = args.y.row(t)[i];
      // beta 0 overwrites: y may hold anything.
      y = args.beta == 0.0F ? args.alpha * args.x.row(t)[i] : args.alpha * args.x.row(t)[i] + args.beta * y;
    }
  }
  return {};
}

Status ReferenceBackend::rank_logits(const RankArgs& args) {
  VN_TRY(check_args(args));
  for (std::int64_t r = 0; r < args.logits.rows; ++r) {
    RankedRow& row = args.rows[r] = {};
    std::vector<RankedLogit> all;
    for (std::int64_t id = 0; id < args.logits.cols; ++id) {
      all.push_back({static_cast<std::int32_t>(id), args.logits.row(r)[id]});
    }
    if (!std::all_of(all.begin(), all.end(), [](const RankedLogit& one) { return std::isfinite(one.logit); })) continue;
    row.is_finite = 1;
    std::sort(all.begin(), all.end(), likelier);
    row.num_entries = std::min(args.count, static_cast<std::int32_t>(all.size()));
    std::copy_n(all.begin(), row.num_entries, args.entries + r * args.count);
    const RankWish& wish = args.wishes[static_cast<std::size_t>(r)];
    for (const RankedLogit& one : all) {
      const auto odds = [&](double inverse) { return odds_of(one.logit, all.front().logit, inverse); };
      if (wish.inverse_temperature > 0.0) row.draw_odds += odds(wish.inverse_temperature);
      if (wish.unit_odds) row.unit_odds += odds(1.0);
    }
  }
  return {};
}

BackendEntry reference_backend_entry() {
  return {.name = "reference",
          .summary = "scalar code in double precision, slow: what other backends are compared with",
          .unavailable = [] { return std::string(); },
          .create = [](const BackendOptions& options) -> Result<std::unique_ptr<Backend>> {
            return std::make_unique<ReferenceBackend>(options);
          }};
}

}  // namespace vernier
