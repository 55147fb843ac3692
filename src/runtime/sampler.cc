#include "runtime/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "runtime/random.h"

namespace vernier {
namespace {

constexpr float kBanned = -std::numeric_limits<float>::infinity();

struct Candidate {
  std::int32_t id = 0;
  float logit = 0.0F;
  double probability = 0.0;
};

bool likelier(const Candidate& a, const Candidate& b) { return a.logit != b.logit ? a.logit > b.logit : a.id < b.id; }

/// Softmax over the candidates, which are sorted with the likeliest first.
void assign_probabilities(std::vector<Candidate>& candidates) {
  double sum = 0.0;
  for (Candidate& candidate : candidates) {
    candidate.probability = std::exp(static_cast<double>(candidate.logit) - static_cast<double>(candidates[0].logit));
    sum += candidate.probability;
  }
  for (Candidate& candidate : candidates) candidate.probability /= sum;
}

/// Number of leading candidates whose probabilities first reach `top_p`.
std::size_t nucleus_size(const std::vector<Candidate>& candidates, double top_p) {
  double sum = 0.0;
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    sum += candidates[i].probability;
    if (sum >= top_p) return i + 1;
  }
  return candidates.size();
}

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

std::int32_t argmax(std::span<const float> logits) {
  return static_cast<std::int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

TokenLogprob token_logprob(std::span<const float> logits, std::int32_t id, std::int32_t top) {
  const double largest = static_cast<double>(logits[static_cast<std::size_t>(argmax(logits))]);
  double sum = 0.0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit) - largest);
  const double log_sum = largest + std::log(sum);
  const auto logprob = [&](std::int32_t token) {
    return static_cast<float>(static_cast<double>(logits[static_cast<std::size_t>(token)]) - log_sum);
  };
  TokenLogprob result{id, logprob(id), {}};
  const std::size_t count = std::min(static_cast<std::size_t>(top), logits.size());
  std::vector<std::int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(count), order.end(),
                    [&](std::int32_t a, std::int32_t b) {
                      const float x = logits[static_cast<std::size_t>(a)];
                      const float y = logits[static_cast<std::size_t>(b)];
                      return x != y ? x > y : a < b;
                    });
  for (std::size_t i = 0; i < count; ++i) result.top.emplace_back(order[i], logprob(order[i]));
  return result;
}

Sampler::Sampler(SamplingParams params, std::span<const std::int32_t> prompt) : params_(std::move(params)) {
  for (const std::int32_t id : prompt) counts_[id].in_prompt = true;
}

void Sampler::apply_penalties(std::span<float> logits) const {
  for (const auto& [id, bias] : params_.logit_bias) {
    float& logit = logits[static_cast<std::size_t>(id)];
    logit = bias <= -100.0F ? kBanned : logit + bias;
  }
  for (const auto& [id, count] : counts_) {
    float& logit = logits[static_cast<std::size_t>(id)];
    if (params_.repeat_penalty != 1.0F) {
      logit = logit > 0.0F ? logit / params_.repeat_penalty : logit * params_.repeat_penalty;
    }
    if (count.in_output > 0) {
      logit -= params_.presence_penalty + params_.frequency_penalty * static_cast<float>(count.in_output);
    }
  }
}

std::int32_t Sampler::draw(std::span<const float> logits, std::uint64_t position) const {
  std::vector<Candidate> candidates;
  candidates.reserve(logits.size());
  for (std::size_t i = 0; i < logits.size(); ++i) {
    if (logits[i] == kBanned) continue;
    candidates.push_back({static_cast<std::int32_t>(i), logits[i] / params_.temperature, 0.0});
  }
  // Top-k and top-p read the order, so ties are broken by id here and nowhere else.
  std::size_t keep = candidates.size();
  if (params_.top_k > 0) keep = std::min(keep, static_cast<std::size_t>(params_.top_k));
  std::partial_sort(candidates.begin(), candidates.begin() + static_cast<std::ptrdiff_t>(keep), candidates.end(),
                    likelier);
  candidates.resize(keep);
  assign_probabilities(candidates);
  if (params_.top_p < 1.0F) candidates.resize(nucleus_size(candidates, static_cast<double>(params_.top_p)));
  if (params_.min_p > 0.0F) {
    const double floor = static_cast<double>(params_.min_p) * candidates[0].probability;
    std::erase_if(candidates, [&](const Candidate& candidate) { return candidate.probability < floor; });
  }
  double total = 0.0;
  for (const Candidate& candidate : candidates) total += candidate.probability;
  double left = uniform_at(params_.seed, position) * total;
  for (const Candidate& candidate : candidates) {
    left -= candidate.probability;
    if (left < 0.0) return candidate.id;
  }
  return candidates.back().id;  // rounding left a sliver above the last one
}

Result<Sampler::Choice> Sampler::choose(std::span<float> logits, std::int64_t usable, std::uint64_t position) {
  logits = logits.first(std::min(logits.size(), static_cast<std::size_t>(usable)));
  for (const float logit : logits) {
    if (!std::isfinite(logit)) return fail(ErrorCode::kInternal, "non-finite logits at position {}", position);
  }
  std::vector<float> untouched;
  if (params_.logprobs) untouched.assign(logits.begin(), logits.end());
  apply_penalties(logits);
  const std::int32_t best = argmax(logits);
  if (logits[static_cast<std::size_t>(best)] == kBanned) {
    return fail(ErrorCode::kInvalidArgument, "logit_bias bans every token of the vocabulary");
  }
  Choice choice;
  choice.id = params_.temperature == 0.0F ? best : draw(logits, position);
  if (params_.logprobs) choice.logprob = token_logprob(untouched, choice.id, *params_.logprobs);
  ++counts_[choice.id].in_output;
  return choice;
}

}  // namespace vernier
