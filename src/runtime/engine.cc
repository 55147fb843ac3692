// The public Engine: requests in, token events out. One mutex guards everything below; steps run while it is held, by
// the background thread after start(), else by whoever waits for an event.
#include "vernier/engine.h"

#include <algorithm>
#include <condition_variable>
#include <list>
#include <mutex>
#include <thread>

#include "runtime/active_request.h"
#include "runtime/loaded_model.h"
#include "runtime/scheduler.h"

namespace vernier {
using ScoreVisitor = std::function<void(std::size_t, std::span<const float>)>;

struct Engine::Impl {
  std::unique_ptr<LoadedModel> loaded;
  std::mutex mutex;
  std::condition_variable changed;
  std::unique_ptr<Scheduler> scheduler;
  std::thread worker;
  bool background = false;
  bool stopping = false;
  std::list<std::shared_ptr<ActiveRequest>> active;

  ~Impl();
  void finish(ActiveRequest& request, FinishReason reason, TokenEvent event = {});
  void fail_request(ActiveRequest& request, Error error);
  void accept_token(ActiveRequest& request, const Sampler::Choice& choice);
  /// Runs a step and ranks its rows of logits, one of each of `outputs`.
  [[nodiscard]] Status compute(const StepPlan& plan, const std::vector<std::shared_ptr<ActiveRequest>>& outputs);
  [[nodiscard]] Result<Sampler::Choice> choose(ActiveRequest& request, std::int32_t row);
  void run_step();
  void fail_all(const Error& error);
  [[nodiscard]] Status check_files() const;
  /// Teacher forcing in chunks: `run` computes one, with logits or without, and returns how many rows of them it left.
  using ScoreStep = std::function<Result<std::int32_t>(const StepPlan&, bool with_logits)>;
  [[nodiscard]] std::optional<Error> score(std::span<const std::int32_t> ids, const ScoreVisitor& visit,
                                           std::size_t first_row, const ScoreStep& run);
};

struct RequestHandle::Impl {
  Engine::Impl* engine = nullptr;
  std::shared_ptr<ActiveRequest> request;
};

// --- steps -----------------------------------------------------------------------------------------------------------

Engine::Impl::~Impl() {
  {
    const std::lock_guard lock(mutex);
    stopping = true;
  }
  changed.notify_all();
  if (worker.joinable()) worker.join();
}

void Engine::Impl::finish(ActiveRequest& request, FinishReason reason, TokenEvent event) {
  if (request.detokenizer && reason != FinishReason::kStop) {
    StopMatcher::Output rest = request.stops.push(request.detokenizer->finish());
    event.text += rest.text;
    if (!rest.stop) event.text += request.stops.finish();
  }
  event.finish = reason;
  request.events.push_back(std::move(event));
  request.finished = true;
  scheduler->remove(request.sequence);
  active.remove_if([&](const auto& other) { return other.get() == &request; });
}

void Engine::Impl::fail_request(ActiveRequest& request, Error error) {
  TokenEvent event;
  event.error = std::move(error);
  finish(request, FinishReason::kError, std::move(event));
}

void Engine::Impl::fail_all(const Error& error) {
  const auto doomed = active;
  for (const auto& request : doomed) fail_request(*request, error);
}

void Engine::Impl::accept_token(ActiveRequest& request, const Sampler::Choice& choice) {
  Sequence& sequence = request.sequence;
  TokenEvent event;
  event.id = choice.id;
  event.logprob = choice.logprob;
  const bool eos =
      !request.sampling.ignore_eos && std::binary_search(loaded->eos_ids.begin(), loaded->eos_ids.end(), choice.id);
  sequence.tokens.push_back(choice.id);
  if (eos) return finish(request, FinishReason::kEos, std::move(event));
  if (request.detokenizer) {
    StopMatcher::Output output = request.stops.push(request.detokenizer->push(choice.id));
    event.text = std::move(output.text);
    if (output.stop) return finish(request, FinishReason::kStop, std::move(event));
  }
  if (static_cast<std::int32_t>(sequence.tokens.size()) >= sequence.max_total) {
    return finish(request, FinishReason::kLength, std::move(event));
  }
  request.events.push_back(std::move(event));
}

Status Engine::Impl::check_files() const {
  for (const auto& file : loaded->files) {
    if (file->failed()) return fail(ErrorCode::kIo, "{}: the file was truncated while in use", file->name());
  }
  return {};
}

Result<Sampler::Choice> Engine::Impl::choose(ActiveRequest& request, std::int32_t row) {
  const std::uint64_t position = request.sequence.tokens.size();
  if (!request.sampler.needs_row()) {
    VN_ASSIGN(auto choice, request.sampler.choose(loaded->runner->ranking(row), position));
    if (choice) return *std::move(choice);
  }
  VN_ASSIGN(const auto logits, loaded->runner->logits(row));
  return request.sampler.choose(logits, loaded->usable_vocab, position);
}

Status Engine::Impl::compute(const StepPlan& plan, const std::vector<std::shared_ptr<ActiveRequest>>& outputs) {
  std::vector<RankWish> wishes;
  std::int32_t count = 0;
  for (const auto& request : outputs) {
    const Sampler::Needs needs = request->sampler.needs_row() ? Sampler::Needs{} : request->sampler.needs();
    wishes.push_back(needs.wish);
    count = std::max(count, needs.count);
  }
  VN_TRY(loaded->runner->run(plan, /*all_rows=*/false));
  VN_TRY(loaded->runner->rank(wishes, count, loaded->usable_vocab));
  return check_files();
}

void Engine::Impl::run_step() {
  const StepPlan plan = scheduler->plan();
  if (plan.num_tokens == 0) return;
  std::vector<std::shared_ptr<ActiveRequest>> outputs;  // held: finish() takes requests out of the list
  for (const StepShare& share : plan.shares) {
    if (!share.wants_logits) continue;
    outputs.push_back(*std::find_if(active.begin(), active.end(),
                                    [&](const auto& request) { return &request->sequence == share.sequence; }));
  }
  if (const Status status = compute(plan, outputs); !status) return fail_all(status.error());
  for (std::int32_t row = 0; row < std::ssize(outputs); ++row) {
    ActiveRequest& request = *outputs[static_cast<std::size_t>(row)];
    const auto choice = choose(request, row);
    if (choice) {
      accept_token(request, *choice);
    } else {
      fail_request(request, choice.error());
    }
  }
}

// --- requests --------------------------------------------------------------------------------------------------------

RequestHandle::RequestHandle(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
RequestHandle::RequestHandle(RequestHandle&&) noexcept = default;
RequestHandle& RequestHandle::operator=(RequestHandle&& other) noexcept {
  if (this != &other) {
    if (impl_) cancel();
    impl_ = std::move(other.impl_);
  }
  return *this;
}
RequestHandle::~RequestHandle() {
  if (impl_) cancel();
}

void RequestHandle::cancel() {
  const std::lock_guard lock(impl_->engine->mutex);
  if (!impl_->request->finished) impl_->engine->finish(*impl_->request, FinishReason::kCancelled);
  impl_->engine->changed.notify_all();
}

std::optional<TokenEvent> RequestHandle::next() {
  Engine::Impl& engine = *impl_->engine;
  ActiveRequest& request = *impl_->request;
  std::unique_lock lock(engine.mutex);
  while (request.events.empty() && !request.finished) {
    if (engine.background) {
      engine.changed.wait(lock);
    } else {
      engine.run_step();
    }
  }
  if (request.events.empty()) return std::nullopt;
  TokenEvent event = std::move(request.events.front());
  request.events.pop_front();
  return event;
}

std::string_view finish_reason_name(FinishReason reason) {
  constexpr std::string_view kNames[] = {"length", "stop", "eos", "cancelled", "error"};
  return kNames[static_cast<std::size_t>(reason)];
}

// --- the engine ------------------------------------------------------------------------------------------------------

Engine::Engine(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Engine::~Engine() = default;

Outcome<std::unique_ptr<Engine>> Engine::open(const EngineOptions& options) {
  auto loaded = load_model(options);
  if (!loaded) return std::move(loaded).error();
  auto impl = std::make_unique<Impl>();
  impl->loaded = std::move(*loaded);
  impl->scheduler = std::make_unique<Scheduler>(SchedulerLimits{impl->loaded->batch_tokens, options.max_sequences},
                                                *impl->loaded->cache);
  return std::unique_ptr<Engine>(new Engine(std::move(impl)));
}

const ModelInfo& Engine::info() const { return impl_->loaded->info; }
const GenerationDefaults& Engine::defaults() const { return impl_->loaded->defaults; }
const std::string& Engine::chat_template() const { return impl_->loaded->chat_template; }

std::string Engine::bos_text() const {
  const auto& tokenizer = impl_->loaded->tokenizer;
  return tokenizer && tokenizer->bos_id() ? std::string(tokenizer->token_text(*tokenizer->bos_id())) : std::string();
}

std::string Engine::eos_text() const {
  const auto& tokenizer = impl_->loaded->tokenizer;
  return tokenizer && tokenizer->eos_id() ? std::string(tokenizer->token_text(*tokenizer->eos_id())) : std::string();
}

Outcome<std::vector<std::int32_t>> Engine::tokenize(std::string_view text, bool add_special, bool parse_special,
                                                    std::span<const LiteralRange> literal) const {
  const LoadedModel& loaded = *impl_->loaded;
  if (!loaded.tokenizer) return Error{ErrorCode::kUnsupported, loaded.tokenizer_problem, "give the prompt with --ids"};
  std::vector<TextRange> ranges;
  for (const LiteralRange& range : literal) ranges.push_back({range.begin, range.end});
  auto ids = loaded.tokenizer->encode(
      text, {.add_special = add_special, .parse_special = parse_special, .literal_ranges = ranges});
  if (!ids) return std::move(ids).error();
  return std::move(*ids);
}

std::vector<std::string> Engine::special_texts() const {
  std::vector<std::string> texts;
  const auto& tokenizer = impl_->loaded->tokenizer;
  for (std::int32_t id = 0; tokenizer && id < tokenizer->vocab_size(); ++id) {
    if (tokenizer->is_special(id)) texts.emplace_back(tokenizer->token_text(id));
  }
  return texts;
}

std::string Engine::detokenize(std::span<const std::int32_t> ids, bool skip_special) const {
  return impl_->loaded->tokenizer ? impl_->loaded->tokenizer->decode(ids, skip_special) : std::string();
}

namespace {

Status check_ids(std::span<const std::int32_t> ids, const LoadedModel& loaded) {
  if (ids.empty()) return fail(ErrorCode::kInvalidArgument, "the prompt is empty");
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < 0 || ids[i] >= loaded.info.vocab_size) {
      return fail(ErrorCode::kInvalidArgument, "prompt[{}] must be a token id in 0..{}, found {}", i,
                  loaded.info.vocab_size - 1, ids[i]);
    }
  }
  return {};
}

/// Checks a request against the model and works out how long its sequence may become.
Result<std::int32_t> admissible_length(const Request& request, const LoadedModel& loaded) {
  const std::int64_t context = loaded.info.context;
  const auto prompt = static_cast<std::int64_t>(request.prompt.size());
  VN_TRY(check_ids(request.prompt, loaded));
  if (prompt >= context) {
    return fail_with_hint(ErrorCode::kInvalidArgument, "shorten the prompt or raise the context with -c",
                          "the prompt has {} tokens, the context holds {}", prompt, context);
  }
  if (auto error = validate(request.sampling, loaded.info.vocab_size)) return tl::unexpected(std::move(*error));
  if (!request.sampling.stop.empty() && !loaded.tokenizer) {
    return fail(ErrorCode::kInvalidArgument, "stop strings need a tokenizer and the model has none");
  }
  if (request.sampling.max_tokens < 0) return static_cast<std::int32_t>(context);
  return static_cast<std::int32_t>(std::min(context, prompt + request.sampling.max_tokens));
}

}  // namespace

Outcome<RequestHandle> Engine::submit(Request request) {
  const auto max_total = admissible_length(request, *impl_->loaded);
  if (!max_total) return max_total.error();
  auto active = std::make_shared<ActiveRequest>(std::move(request), *impl_->loaded);
  active->sequence.max_total = *max_total;
  auto handle = std::make_unique<RequestHandle::Impl>();
  handle->engine = impl_.get();
  handle->request = active;
  {
    const std::lock_guard lock(impl_->mutex);
    impl_->active.push_back(active);
    if (active->sequence.max_total == active->sequence.num_prompt) {
      impl_->finish(*active, FinishReason::kLength);  // max_tokens 0
    } else {
      impl_->scheduler->add(active->sequence);
    }
  }
  impl_->changed.notify_all();
  return RequestHandle(std::move(handle));
}

void Engine::start() {
  const std::lock_guard lock(impl_->mutex);
  if (impl_->background) return;
  impl_->background = true;
  impl_->worker = std::thread([impl = impl_.get()] {
    std::unique_lock guard(impl->mutex);
    while (!impl->stopping) {
      if (impl->scheduler->idle()) {
        impl->changed.wait(guard);
        continue;
      }
      impl->run_step();
      impl->changed.notify_all();
      // Let submit() and cancel() in: a mutex alone may starve them.
      guard.unlock();
      std::this_thread::yield();
      guard.lock();
    }
  });
}

bool Engine::can_draft() const { return impl_->loaded->model->can_draft(); }

std::optional<Error> Engine::score(std::span<const std::int32_t> ids,
                                   const std::function<void(std::size_t, std::span<const float>)>& visit,
                                   std::size_t first_row) {
  return impl_->score(ids, visit, first_row, [&](const StepPlan& plan, bool with_logits) -> Result<std::int32_t> {
    VN_TRY(impl_->loaded->runner->run(plan, with_logits));
    return with_logits ? plan.num_tokens : 0;
  });
}

std::optional<Error> Engine::score_drafts(std::span<const std::int32_t> ids,
                                          const std::function<void(std::size_t, std::span<const float>)>& visit) {
  if (!can_draft()) return Error{ErrorCode::kUnsupported, "the model holds no multi-token prediction block", {}};
  return impl_->score(ids, visit, 0, [&](const StepPlan& plan, bool /*with_logits*/) {
    return impl_->loaded->runner->run_drafts(plan.shares.front());
  });
}

std::optional<Error> Engine::Impl::score(std::span<const std::int32_t> ids, const ScoreVisitor& visit,
                                         std::size_t first_row, const ScoreStep& run) {
  if (const Status status = check_ids(ids, *loaded); !status) return status.error();
  if (ids.size() > static_cast<std::size_t>(loaded->info.context)) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("the text has {} tokens, the context holds {}", ids.size(), loaded->info.context),
                 "shorten the text or raise the context with -c"};
  }
  const std::lock_guard lock(mutex);
  Sequence sequence;
  sequence.tokens.assign(ids.begin(), ids.end());
  sequence.max_total = static_cast<std::int32_t>(ids.size());
  KvCache& cache = *loaded->cache;
  if (cache.pages().available() < cache.pages_for(sequence.max_total) || cache.slots().available() == 0) {
    return Error{ErrorCode::kOverloaded, "the caches are in use by running requests", {}};
  }
  // A scheduler of its own: chunks as for a prompt, and the pages come back on remove().
  Scheduler chunks({loaded->runner->max_scored_tokens(), 1}, cache);
  chunks.add(sequence);
  std::optional<Error> problem;
  while (sequence.num_pending() > 0 && !problem) {
    const auto begin = static_cast<std::size_t>(sequence.num_computed);
    const StepPlan plan = chunks.plan();
    const auto rows = run(plan, begin + static_cast<std::size_t>(plan.num_tokens) > first_row);
    if (!rows) problem = rows.error();
    for (std::int32_t i = 0; !problem && i < *rows; ++i) {
      const std::size_t row = begin + static_cast<std::size_t>(i);
      if (row < first_row) continue;
      const auto logits = loaded->runner->logits(i);
      if (logits) {
        visit(row, *logits);
      } else {
        problem = logits.error();
      }
    }
  }
  chunks.remove(sequence);
  if (const Status files = check_files(); !problem && !files) problem = files.error();
  return problem;
}

}  // namespace vernier
