#include "runtime/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "backend/odds.h"
#include "backend/rank.h"
#include "runtime/draw.h"
#include "runtime/random.h"

namespace vernier {
namespace {

/// Finite, so that rankings take it for a logit, and without any odds beside another.
constexpr float kBanned = std::numeric_limits<float>::lowest();

Error non_finite(std::uint64_t position) {
  return {ErrorCode::kInternal, fmt::format("non-finite logits at position {}", position), {}};
}

/// `logit` is the token's own; `ranking` has unit odds and at least the `top` likeliest.
TokenLogprob token_logprob(const Ranking& ranking, const RankedLogit& token, std::int32_t top) {
  const double largest = static_cast<double>(ranking.entries[0].logit);
  const double log_sum = std::log(static_cast<double>(ranking.row.unit_odds) / kTopOdds);
  const auto logprob = [&](float logit) { return static_cast<float>(static_cast<double>(logit) - largest - log_sum); };
  TokenLogprob result{token.id, logprob(token.logit), {}};
  for (const RankedLogit& entry : ranking.entries.first(std::min<std::size_t>(top, ranking.entries.size()))) {
    result.top.emplace_back(entry.id, logprob(entry.logit));
  }
  return result;
}

/// A ranking made here.
struct RowRanking {
  RowRanking(std::span<const float> logits, const Sampler::Needs& needs)
      : entries(static_cast<std::size_t>(needs.count)) {
    view.row = rank_row(logits, needs.wish, entries);
    view.entries = std::span(entries).first(static_cast<std::size_t>(view.row.num_entries));
    view.num_ids = static_cast<std::int64_t>(logits.size());
  }
  RowRanking(const RowRanking&) = delete;
  RowRanking& operator=(const RowRanking&) = delete;

  std::vector<RankedLogit> entries;
  Ranking view;
};

std::optional<Error> out_of_range(std::string_view field, const std::string& value, std::string_view range) {
  return Error{ErrorCode::kInvalidArgument, fmt::format("{} must be {}, found {}", field, range, value), {}};
}

bool within(float value, float low, float high) { return value >= low && value <= high; }  // false for NaN

std::optional<Error> validate_lists(const SamplingParams& params, std::int64_t vocab_size) {
  if (params.stop.size() > 16)
    return out_of_range("stop", fmt::format("{} strings", params.stop.size()), "at most 16 strings");
  for (const std::string& stop : params.stop) {
    if (stop.empty() || stop.size() > 256) {
      return out_of_range("stop", fmt::format("{} bytes", stop.size()), "a string of 1 to 256 bytes");
    }
  }
  if (params.logit_bias.size() > 1024) {
    return out_of_range("logit_bias", fmt::format("{} entries", params.logit_bias.size()), "at most 1024 entries");
  }
  for (const auto& [id, bias] : params.logit_bias) {
    if (id < 0 || id >= vocab_size) {
      return out_of_range("logit_bias token", fmt::format("{}", id), fmt::format("in 0..{}", vocab_size - 1));
    }
    if (!within(bias, -1000.0F, 1000.0F)) {
      return out_of_range("logit_bias", fmt::format("{}", bias), "in -1000..1000");
    }
  }
  return std::nullopt;
}

}  // namespace

std::optional<Error> validate(const SamplingParams& params, std::int64_t vocab_size) {
  const auto number = [](float value) { return fmt::format("{}", value); };
  if (!within(params.temperature, 0.0F, 100.0F))
    return out_of_range("temperature", number(params.temperature), "in 0..100");
  if (params.top_k < 0) return out_of_range("top_k", fmt::format("{}", params.top_k), "0 (all) or more");
  if (!within(params.top_p, 0.0F, 1.0F) || params.top_p == 0.0F) {
    return out_of_range("top_p", number(params.top_p), "above 0 and at most 1");
  }
  if (!within(params.min_p, 0.0F, 1.0F)) return out_of_range("min_p", number(params.min_p), "in 0..1");
  if (!within(params.repeat_penalty, 0.01F, 100.0F)) {
    return out_of_range("repeat_penalty", number(params.repeat_penalty), "in 0.01..100");
  }
  if (!within(params.presence_penalty, -100.0F, 100.0F)) {
    return out_of_range("presence_penalty", number(params.presence_penalty), "in -100..100");
  }
  if (!within(params.frequency_penalty, -100.0F, 100.0F)) {
    return out_of_range("frequency_penalty", number(params.frequency_penalty), "in -100..100");
  }
  if (params.logprobs && (*params.logprobs < 0 || *params.logprobs > 20)) {
    return out_of_range("logprobs", fmt::format("{}", *params.logprobs), "in 0..20");
  }
  if (params.max_tokens < -1) {
    return out_of_range("max_tokens", fmt::format("{}", params.max_tokens), "-1 (no limit) or more");
  }
  return validate_lists(params, vocab_size);
}

Sampler::Sampler(SamplingParams params, std::span<const std::int32_t> prompt) : params_(std::move(params)) {
  for (const std::int32_t id : prompt) counts_[id].in_prompt = true;
}

bool Sampler::changes_logits() const {
  return !params_.logit_bias.empty() || params_.repeat_penalty != 1.0F || params_.presence_penalty != 0.0F ||
         params_.frequency_penalty != 0.0F;
}

bool Sampler::needs_row() const {
  return changes_logits() || (params_.temperature > 0.0F && params_.top_k > kMostRanked);
}

Sampler::Needs Sampler::logprob_needs() const {
  return {std::max(1, params_.logprobs.value_or(0)), {0.0, params_.logprobs.has_value()}};
}

Sampler::Needs Sampler::needs() const {
  Needs needs = logprob_needs();
  if (params_.temperature == 0.0F) return needs;
  if (params_.top_k > 0) {
    needs.count = std::min(std::max(needs.count, params_.top_k), kMostRanked);
  } else {
    needs.count = kMostRanked;
    needs.wish.inverse_temperature = inverse_temperature(params_);
  }
  return needs;
}

void Sampler::apply_penalties(std::span<float> logits) const {
  const auto change = [&](std::int32_t id, const auto& changed) {
    if (static_cast<std::size_t>(id) >= logits.size()) return;  // a row of padding
    float& logit = logits[static_cast<std::size_t>(id)];
    logit = std::clamp(changed(logit), kBanned, -kBanned);
  };
  for (const auto& [id, bias] : params_.logit_bias) {
    change(id, [bias = bias](float logit) { return bias <= -100.0F ? kBanned : logit + bias; });
  }
  for (const auto& [id, count] : counts_) {
    change(id, [&, count = count](float logit) {
      const float penalty = params_.repeat_penalty;
      if (penalty != 1.0F) logit = logit > 0.0F ? logit / penalty : logit * penalty;
      if (count.in_output == 0) return logit;
      return logit - (params_.presence_penalty + params_.frequency_penalty * static_cast<float>(count.in_output));
    });
  }
}

Sampler::Choice Sampler::record(const RankedLogit& token, const Ranking& model) {
  ++counts_[token.id].in_output;
  Choice choice{token.id, {}};
  if (params_.logprobs) choice.logprob = token_logprob(model, token, *params_.logprobs);
  return choice;
}

Result<std::optional<Sampler::Choice>> Sampler::choose(const Ranking& ranking, std::uint64_t position) {
  if (ranking.row.is_finite == 0) return tl::unexpected(non_finite(position));
  const auto reach = std::min<std::int64_t>(params_.logprobs.value_or(0), ranking.num_ids);
  if (std::ssize(ranking.entries) < reach) return std::nullopt;
  if (params_.temperature == 0.0F) return record(ranking.entries[0], ranking);
  const auto id = draw(params_, ranking, uniform_at(params_.seed, position));
  if (!id) return std::nullopt;
  return record(*std::find_if(ranking.entries.begin(), ranking.entries.end(),
                              [&](const RankedLogit& entry) { return entry.id == *id; }),
                ranking);
}

Result<Sampler::Choice> Sampler::choose(std::span<float> logits, std::int64_t usable, std::uint64_t position) {
  logits = logits.first(std::min(logits.size(), static_cast<std::size_t>(usable)));
  const RowRanking model(logits, changes_logits() ? logprob_needs() : needs());
  if (model.view.row.is_finite == 0) return tl::unexpected(non_finite(position));
  if (!changes_logits()) {
    const std::int32_t id = pick(logits, model.view, position);
    return record({id, logits[static_cast<std::size_t>(id)]}, model.view);
  }
  // Log-probabilities are those of the model's own logits.
  const std::vector<float> untouched(logits.begin(), logits.end());
  apply_penalties(logits);
  const RowRanking changed(logits, needs());
  if (changed.view.entries[0].logit == kBanned) {
    return fail(ErrorCode::kInvalidArgument, "logit_bias bans every token of the vocabulary");
  }
  const std::int32_t id = pick(logits, changed.view, position);
  return record({id, untouched[static_cast<std::size_t>(id)]}, model.view);
}

std::int32_t Sampler::pick(std::span<const float> logits, const Ranking& ranking, std::uint64_t position) const {
  if (params_.temperature == 0.0F) return ranking.entries[0].id;
  const double uniform = uniform_at(params_.seed, position);
  const auto id = draw(params_, ranking, uniform);
  if (id) return *id;
  const std::vector<RankedLogit> all = sort_row(logits);
  return *draw(params_, {ranking.row, all, ranking.num_ids}, uniform);
}

}  // namespace vernier
