// A request of the engine while it runs.
#pragma once

#include <deque>
#include <optional>
#include <utility>

#include "runtime/loaded_model.h"
#include "runtime/sampler.h"
#include "runtime/sequence.h"
#include "text/detokenizer.h"
#include "text/stop_matcher.h"
#include "vernier/engine.h"

namespace vernier {

/// A request that is in the scheduler, and the events nobody has read yet.
struct ActiveRequest {
  ActiveRequest(Request request, const LoadedModel& loaded)
      : sampling(std::move(request.sampling)), sampler(sampling, request.prompt), stops(sampling.stop) {
    sequence.tokens = std::move(request.prompt);
    sequence.num_prompt = static_cast<std::int32_t>(sequence.tokens.size());
    if (loaded.tokenizer) detokenizer.emplace(loaded.tokenizer, /*skip_special=*/true);
  }

  SamplingParams sampling;
  Sampler sampler;
  StopMatcher stops;
  std::optional<Detokenizer> detokenizer;
  Sequence sequence;
  std::deque<TokenEvent> events;
  bool finished = false;  // its last event is in `events`
};

}  // namespace vernier
