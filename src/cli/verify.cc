// `vernier verify`: teacher-forced comparison with reference ids, margins and logits.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>

#include "base/json.h"
#include "cli/logit_stats.h"
#include "cli/model_flags.h"
#include "cli/prompt.h"
#include "cli/reference_file.h"
#include "cli/report.h"
#include "cli/verb.h"

namespace vernier::cli {
namespace {

struct VerifyFlags {
  ModelFlags model;
  std::string expected;
  std::optional<double> margin;
  bool json = false;
};

/// A position where the model's likeliest token isn't the reference's.
struct Difference {
  std::size_t prompt = 0;
  std::size_t step = 0;
  std::int32_t expected = 0;
  std::int32_t found = 0;
  double margin = 0.0;  ///< between the reference's two likeliest tokens there
};

struct Comparison {
  std::size_t compared = 0;
  std::vector<Difference> differences;
  std::size_t positions = 0;  ///< with reference logits
  double kl_sum = 0.0;
  double kl_max = 0.0;
  double largest_logit_error = 0.0;
  std::size_t drafts = 0;  ///< of the multi-token prediction block
  std::size_t drafts_equal = 0;
};

void compare_logits(std::span<const float> expected, std::span<const float> found, Comparison& result) {
  const double kl = divergence(log_softmax(expected), log_softmax(found));
  result.kl_sum += kl;
  result.kl_max = std::isnan(kl) ? kl : std::max(result.kl_max, kl);
  ++result.positions;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const double error = std::abs(static_cast<double>(expected[i]) - static_cast<double>(found[i]));
    result.largest_logit_error = std::max(result.largest_logit_error, error);
  }
}

/// Runs one prompt with its continuation and compares the prediction at every generated position, and the logits of the
/// positions that the reference stored.
std::optional<Error> compare_prompt(Engine& engine, const ReferenceFile& reference, std::size_t index,
                                    Comparison& result) {
  const ReferencePrompt& prompt = reference.prompts[index];
  std::vector<std::int32_t> ids = prompt.prompt_ids;
  ids.insert(ids.end(), prompt.greedy_ids.begin(), prompt.greedy_ids.end());
  const std::size_t first = prompt.prompt_ids.size();
  // The last generated token predicts something the reference doesn't tell.
  ids.pop_back();
  return engine.score(ids, [&](std::size_t row, std::span<const float> logits) {
    if (index == 0 && row < reference.num_logit_rows()) compare_logits(reference.logits_of(row), logits, result);
    if (row + 1 < first) return;
    const std::size_t step = row + 1 - first;
    const std::int32_t found = likeliest(logits);
    ++result.compared;
    if (found == prompt.greedy_ids[step]) return;
    result.differences.push_back({index, step, prompt.greedy_ids[step], found, prompt.top2_margin[step]});
  });
}

/// The same for the drafts of the multi-token prediction block, which the reference made on prompt 0.
std::optional<Error> compare_drafts(Engine& engine, const ReferenceFile& reference, Comparison& result) {
  if (reference.draft_ids.empty() || !engine.can_draft()) return std::nullopt;
  std::vector<std::int32_t> ids = reference.prompts[0].prompt_ids;
  ids.insert(ids.end(), reference.prompts[0].greedy_ids.begin(), reference.prompts[0].greedy_ids.end());
  return engine.score_drafts(ids, [&](std::size_t row, std::span<const float> logits) {
    if (row >= reference.draft_ids.size()) return;
    const std::int32_t found = likeliest(logits);
    ++result.drafts;
    result.drafts_equal += found == reference.draft_ids[row] ? 1 : 0;
  });
}

Json comparison_json(const Comparison& result, double bound, bool agrees) {
  JsonObject object;
  object.set("compared", static_cast<std::uint64_t>(result.compared));
  object.set("equal", static_cast<std::uint64_t>(result.compared - result.differences.size()));
  object.set("margin_bound", bound);
  JsonArray differences;
  for (const Difference& difference : result.differences) {
    JsonObject item;
    item.set("prompt", static_cast<std::uint64_t>(difference.prompt));
    item.set("step", static_cast<std::uint64_t>(difference.step));
    item.set("expected", difference.expected);
    item.set("found", difference.found);
    item.set("margin", difference.margin);
    differences.push_back(std::move(item));
  }
  object.set("differences", std::move(differences));
  if (result.positions > 0) {
    object.set("kl_positions", static_cast<std::uint64_t>(result.positions));
    object.set("mean_kl", result.kl_sum / static_cast<double>(result.positions));
    object.set("max_kl", result.kl_max);
    object.set("max_logit_error", result.largest_logit_error);
  }
  if (result.drafts > 0) {
    object.set("drafts", static_cast<std::uint64_t>(result.drafts));
    object.set("drafts_equal", static_cast<std::uint64_t>(result.drafts_equal));
  }
  object.set("agrees", agrees);
  return object;
}

void print_comparison(const Comparison& result, double bound) {
  print(fmt::format("tokens     {} of {} equal\n", result.compared - result.differences.size(), result.compared));
  if (!result.differences.empty()) {
    const Difference& first = result.differences.front();
    const auto worst = std::max_element(result.differences.begin(), result.differences.end(),
                                        [](const auto& a, const auto& b) { return a.margin < b.margin; });
    print(fmt::format("first      prompt {} step {}: expected {}, found {}, reference margin {:.4g}\n", first.prompt,
                      first.step, first.expected, first.found, first.margin));
    print(fmt::format("largest    margin {:.4g} at a difference (bound {:.4g})\n", worst->margin, bound));
  }
  if (result.positions > 0) {
    print(fmt::format("kl         mean {:.3e}, max {:.3e} over {} positions; largest logit error {:.3e}\n",
                      result.kl_sum / static_cast<double>(result.positions), result.kl_max, result.positions,
                      result.largest_logit_error));
  }
  if (result.drafts > 0) print(fmt::format("drafts     {} of {} equal\n", result.drafts_equal, result.drafts));
}

int verify(VerifyFlags& flags) {
  const auto reference = read_reference(flags.expected);
  if (!reference) return report(reference.error());
  const double bound = flags.margin.value_or(flags.model.engine.precision == "f32" ? 0.0 : 0.1);
  auto opened = flags.model.open();
  if (!opened) return report(opened.error());
  Engine& engine = **opened;
  if (reference->num_logit_rows() > 0 && reference->vocab_size != static_cast<std::size_t>(engine.info().vocab_size)) {
    return report(Error{
        ErrorCode::kCorrupt,
        fmt::format("the reference has {} logits a row, the model {}", reference->vocab_size, engine.info().vocab_size),
        {}});
  }
  Comparison result;
  for (std::size_t i = 0; i < reference->prompts.size(); ++i) {
    if (const auto error = compare_prompt(engine, *reference, i, result)) return report(*error);
  }
  if (const auto error = compare_drafts(engine, *reference, result)) return report(*error);
  // Drafts have no margins in the reference: all must be equal where nothing is rounded.
  const bool drafts_agree = bound > 0.0 || result.drafts_equal == result.drafts;
  const bool agrees = drafts_agree &&
                      std::none_of(result.differences.begin(), result.differences.end(),
                                   [&](const Difference& difference) { return difference.margin > bound; }) &&
                      !std::isnan(result.kl_max);
  if (flags.json) {
    print(to_json_text(comparison_json(result, bound, agrees), 1) + "\n");
  } else {
    print_comparison(result, bound);
    print(agrees ? "agrees\n" : "DIFFERS\n");
  }
  return agrees ? kExitDone : kExitDiffers;
}

}  // namespace

VerbBody declare_verify(CLI::App& app) {
  const auto flags = std::make_shared<VerifyFlags>();
  add_model_flags(app, flags->model);
  app.add_option("--expected", flags->expected, "reference: FILE.json, with FILE.safetensors beside it for logits")
      ->option_text("FILE.json")
      ->required();
  app.add_option("--margin", flags->margin,
                 "allow a different token where the reference's margin is at most this (default 0.1, or 0 with f32)");
  app.add_flag("--json", flags->json, "print one JSON object");
  return [flags] { return verify(*flags); };
}

}  // namespace vernier::cli
