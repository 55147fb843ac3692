#include "cli/perplexity_result.h"

#include <algorithm>
#include <cmath>

#include "base/result.h"
#include "cli/report.h"

namespace vernier::cli {
namespace {

/// The model's perplexity beside the base's.
struct Delta {
  Estimate base;
  Estimate log_ratio;  ///< of the two perplexities
  Estimate delta;      ///< their difference
};

Delta delta_of(const Scores& scores, const Estimate& nll) {
  Delta result;
  result.base = mean_of(scores.base_nll);
  std::vector<double> differences;
  for (std::size_t i = 0; i < scores.nll.size(); ++i) differences.push_back(scores.nll[i] - scores.base_nll[i]);
  result.log_ratio = mean_of(differences);
  // The two means go together, so their errors don't simply add up.
  const double ppl = std::exp(nll.mean);
  const double base_ppl = std::exp(result.base.mean);
  const double variance = ppl * ppl * nll.error * nll.error +
                          base_ppl * base_ppl * result.base.error * result.base.error -
                          2.0 * ppl * base_ppl * covariance_of_means(scores.nll, scores.base_nll);
  result.delta = {ppl - base_ppl, std::sqrt(std::max(variance, 0.0))};
  return result;
}

double same_top_share(const Scores& scores) {
  return static_cast<double>(scores.same_top) / static_cast<double>(scores.kl.size());
}

}  // namespace

std::string perplexity_text(const Estimate& nll) {
  const double ppl = std::exp(nll.mean);
  return fmt::format("{:.4f} +/- {:.4f}", ppl, ppl * nll.error);
}

void print_result(const Scores& scores, const std::string* base) {
  const Estimate nll = mean_of(scores.nll);
  if (base != nullptr) {
    const Delta delta = delta_of(scores, nll);
    const Estimate kl = mean_of(scores.kl);
    print(fmt::format("base       {}: PPL {}\n", escape(*base), perplexity_text(delta.base)));
    print(fmt::format("delta PPL  {:+.6f} +/- {:.6f}; ratio {:.6f}, its logarithm {:+.3e} +/- {:.3e}\n",
                      delta.delta.mean, delta.delta.error, std::exp(delta.log_ratio.mean), delta.log_ratio.mean,
                      delta.log_ratio.error));
    print(fmt::format("kl         mean {:.3e} +/- {:.3e}, median {:.3e}, 99.9 % {:.3e}, max {:.3e}\n", kl.mean,
                      kl.error, quantile(scores.kl, 0.5), quantile(scores.kl, 0.999), quantile(scores.kl, 1.0)));
    print(fmt::format("same top   {:.3f} % of {} tokens\n", 100.0 * same_top_share(scores), scores.kl.size()));
  }
  print(fmt::format("scored     {} tokens of {} of {} windows of {}\n", scores.nll.size(), scores.done,
                    scores.windows.size(), scores.windows.front().size()));
  print(fmt::format("PPL = {}\n", perplexity_text(nll)));
}

Json result_json(const Scores& scores, const ModelInfo& info, const std::string* base) {
  const Estimate nll = mean_of(scores.nll);
  const double ppl = std::exp(nll.mean);
  JsonObject object;
  object.set("model", info.name);
  object.set("device", info.device);
  object.set("precision", info.precision);
  object.set("ctx", static_cast<std::uint64_t>(scores.windows.front().size()));
  object.set("windows", static_cast<std::uint64_t>(scores.done));
  object.set("tokens", static_cast<std::uint64_t>(scores.nll.size()));
  object.set("ppl", ppl);
  object.set("ppl_error", ppl * nll.error);
  object.set("mean_nll", nll.mean);
  object.set("interrupted", scores.done < scores.windows.size());
  if (base == nullptr) return object;
  const Delta delta = delta_of(scores, nll);
  const Estimate kl = mean_of(scores.kl);
  JsonObject against;
  against.set("base", *base);
  against.set("base_ppl", std::exp(delta.base.mean));
  against.set("delta_ppl", delta.delta.mean);
  against.set("delta_ppl_error", delta.delta.error);
  against.set("log_ratio", delta.log_ratio.mean);
  against.set("log_ratio_error", delta.log_ratio.error);
  against.set("mean_kl", kl.mean);
  against.set("mean_kl_error", kl.error);
  against.set("median_kl", quantile(scores.kl, 0.5));
  against.set("kl_99_9", quantile(scores.kl, 0.999));
  against.set("max_kl", quantile(scores.kl, 1.0));
  against.set("same_top", same_top_share(scores));
  object.set("against", std::move(against));
  return object;
}

}  // namespace vernier::cli
