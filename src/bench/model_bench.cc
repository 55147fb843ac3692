#include "bench/model_bench.h"

#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>

#include "backend/step_counter.h"
#include "base/cpu_topology.h"
#include "bench/random.h"
#include "bench/room.h"
#include "format/scalar_codecs.h"

namespace vernier::bench {
namespace {

constexpr std::size_t kNoiseBytes = 1U << 20U;

double cpu_seconds() {
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

/// Cache elements of ordinary size.
std::vector<std::byte> cache_noise(DType dtype) {
  Random random(1);
  const std::size_t width = dtype_bits(dtype) / 8;
  std::vector<std::byte> bytes(kNoiseBytes);
  for (std::size_t at = 0; at < bytes.size(); at += width) {
    const float value = random.normal();
    const std::uint16_t half = BF16Codec::encode(value);
    const std::uint8_t small = E4M3Codec::encode(value);
    const void* from = width == 4   ? static_cast<const void*>(&value)
                       : width == 2 ? static_cast<const void*>(&half)
                                    : &small;
    std::memcpy(bytes.data() + at, from, width);
  }
  return bytes;
}

Status fill_with(Backend& backend, const std::vector<std::byte>& noise, void* to, std::size_t size) {
  for (std::size_t at = 0; at < size; at += noise.size()) {
    VN_TRY(backend.copy_to_device(static_cast<std::byte*>(to) + at, noise.data(), std::min(noise.size(), size - at)));
  }
  return {};
}

/// Speed with numbers that aren't any can differ from that with real ones.
Status check_logits(std::span<const float> logits) {
  if (std::all_of(logits.begin(), logits.end(), [](float value) { return std::isfinite(value); })) return {};
  return fail(ErrorCode::kCorrupt, "the model's logits aren't finite, so its speed would mean nothing");
}

/// Sets context, sequences and batch of `engine` from the tests.
Status fit_engine(const ModelBenchOptions& options, std::int64_t model_context, EngineOptions& engine) {
  std::int64_t needed = 0;
  for (const Test& test : options.tests) {
    engine.max_sequences = std::max(engine.max_sequences, test.sequences);
    for (const std::int32_t depth : options.depths) {
      const std::int64_t tokens = std::int64_t{depth} + test.prompt + test.generated;
      const std::int64_t limit = engine.context > 0 ? engine.context : model_context;
      if (tokens > limit) {
        return fail(ErrorCode::kInvalidArgument, "{} at depth {} needs {} tokens, {} {}", test.name(), depth, tokens,
                    engine.context > 0 ? "--ctx is" : "the model's context is", limit);
      }
      needed = std::max(needed, tokens);
    }
  }
  if (engine.context == 0) engine.context = static_cast<std::int32_t>(needed);
  if (engine.batch_tokens > 0) engine.batch_tokens = std::max(engine.batch_tokens, engine.max_sequences);
  return {};
}

/// Synthetic weights take host memory before any backend places them.
Status check_host_memory(std::uint64_t size_bytes) {
  return check_host_room({"the synthetic model takes", "--layers N makes a shallower model of the same shape"},
                         static_cast<double>(size_bytes));
}

struct Opened {
  std::unique_ptr<LoadedModel> loaded;
  EngineOptions engine;
  ModelConfig config;
  CacheShapes shapes;
};

Result<Opened> load(const ModelBenchOptions& options, const OpenedModel& opened, SyntheticModel* synthetic) {
  Opened result;
  result.engine = options.engine;
  result.config = opened.description.config;
  result.shapes = opened.description.architecture->caches(result.config);
  VN_TRY(fit_engine(options, result.config.context_length, result.engine));
  if (synthetic != nullptr) VN_TRY(check_host_memory(synthetic->size_bytes()));
  VN_ASSIGN(result.loaded, prepare_model(opened, result.engine));
  if (synthetic != nullptr) {
    synthetic->fill(result.engine.threads);
    result.engine.check_weights = false;  // made valid
    result.loaded->info.name = options.synthetic->shape;
    result.loaded->info.warnings.clear();  // it has no tokenizer, and needs none
  }
  VN_TRY(finish_model(opened, result.engine, *result.loaded));
  return result;
}

}  // namespace

Result<ModelBench> ModelBench::open(const ModelBenchOptions& options) {
  std::optional<SyntheticModel> synthetic;
  std::optional<OpenedModel> from_file;
  if (options.synthetic) {
    VN_ASSIGN(synthetic, SyntheticModel::plan(*options.synthetic));
  } else {
    VN_ASSIGN(from_file, open_for_engine(options.engine));
  }
  const OpenedModel& opened = synthetic ? synthetic->opened() : *from_file;
  VN_ASSIGN(Opened result, load(options, opened, synthetic ? &*synthetic : nullptr));

  ModelBench bench(std::move(result.loaded));
  const KvCache& cache = *bench.loaded_->cache;
  const DType kv_dtype = cache.layers().empty() ? DType::kBF16 : cache.layers().front().kv.dtype;
  bench.costs_.emplace(result.config, bench.loaded_->traffic, result.shapes, kv_dtype);
  bench.clock_ = options.clock;
  bench.threads_ = options.engine.threads > 0 ? options.engine.threads : default_thread_count();
  bench.batch_tokens_ = bench.loaded_->batch_tokens;
  bench.pages_a_sequence_ = cache.pages_for(result.engine.context);
  const bool has_depth =
      std::any_of(options.depths.begin(), options.depths.end(), [](auto depth) { return depth > 0; });
  if (has_depth) VN_TRY(bench.fill_caches(result.engine.max_sequences));
  return bench;
}

Status ModelBench::fill_caches(std::int32_t num_slots) {
  std::vector<std::byte> noise;
  const auto positions = static_cast<std::size_t>(loaded_->cache->num_pages() * loaded_->cache->page_size());
  for (const LayerCache& layer : loaded_->cache->layers()) {
    if (layer.kv.keys == nullptr) continue;
    if (noise.empty()) noise = cache_noise(layer.kv.dtype);
    const std::size_t size = positions * static_cast<std::size_t>(layer.kv.num_kv_heads * layer.kv.head_dim) *
                             (dtype_bits(layer.kv.dtype) / 8);
    VN_TRY(fill_with(*loaded_->backend, noise, layer.kv.keys, size));
    VN_TRY(fill_with(*loaded_->backend, noise, layer.kv.values, size));
  }
  const KvCache& cache = *loaded_->cache;
  const std::vector<StateShape>& states = cache.shape().state;
  if (!states.empty()) noise = cache_noise(DType::kF32);
  for (std::size_t i = 0; i < states.size(); ++i) {
    const std::size_t slots = static_cast<std::size_t>(num_slots) * sizeof(float);
    const LayerCache& layer = cache.layers()[i];
    VN_TRY(fill_with(*loaded_->backend, noise, layer.recurrent,
                     static_cast<std::size_t>(states[i].recurrent_floats) * slots));
    VN_TRY(fill_with(*loaded_->backend, noise, layer.convolution,
                     static_cast<std::size_t>(states[i].convolution_floats) * slots));
  }
  return {};
}

void ModelBench::start_sequences(const Test& test, std::int32_t depth) {
  sequences_.assign(static_cast<std::size_t>(test.sequences), {});
  const std::int32_t total = depth + test.prompt + test.generated;
  for (std::int32_t i = 0; i < test.sequences; ++i) {
    Sequence& sequence = sequences_[static_cast<std::size_t>(i)];
    Random random(static_cast<std::uint64_t>(i));
    for (std::int32_t t = 0; t < total; ++t) {
      sequence.tokens.push_back(
          static_cast<std::int32_t>(random.below(static_cast<std::uint64_t>(loaded_->usable_vocab))));
    }
    sequence.num_prompt = depth + test.prompt;
    sequence.num_computed = depth;
    sequence.max_total = total;
    sequence.state_slot = i;
    for (std::int32_t page = 0; page < pages_a_sequence_; ++page) {
      sequence.pages.push_back(i * pages_a_sequence_ + page);
    }
  }
}

Status ModelBench::run_step(const StepPlan& plan, std::vector<Cost>& steps) {
  std::vector<CostSlice> slices;
  for (const StepShare& share : plan.shares) {
    slices.push_back({share.num_tokens, share.sequence->num_computed, share.wants_logits});
  }
  steps.push_back(costs_->step(slices));
  VN_TRY(loaded_->runner->run(plan, /*all_rows=*/false));
  // As for greedy decoding.
  const std::vector<RankWish> wishes(static_cast<std::size_t>(plan.num_outputs));
  return loaded_->runner->rank(wishes, 1, loaded_->usable_vocab);
}

/// Prompts in chunks of at most batch_tokens_, of several sequences where they fit.
Status ModelBench::run_prompts(std::vector<Cost>& steps) {
  StepPlan plan;
  const auto flush = [&]() -> Status {
    if (plan.shares.empty()) return {};
    VN_TRY(run_step(plan, steps));
    plan = {};
    return {};
  };
  for (Sequence& sequence : sequences_) {
    std::int32_t left = sequence.num_prompt - sequence.num_computed;
    while (left > 0) {
      const std::int32_t count = std::min(left, batch_tokens_ - plan.num_tokens);
      left -= count;
      plan.shares.push_back({&sequence, count, left == 0});
      plan.num_tokens += count;
      plan.num_outputs += left == 0 ? 1 : 0;
      if (plan.num_tokens == batch_tokens_) VN_TRY(flush());
    }
  }
  return flush();
}

Result<ModelBench::Timing> ModelBench::time_once(const Test& test, std::int32_t depth) {
  start_sequences(test, depth);
  Timing timing;
  const double cpu_start = cpu_seconds();
  const auto start = std::chrono::steady_clock::now();
  VN_TRY(run_prompts(timing.steps));
  StepPlan plan;
  for (Sequence& sequence : sequences_) plan.shares.push_back({&sequence, 1, true});
  plan.num_tokens = plan.num_outputs = test.sequences;
  std::vector<std::chrono::steady_clock::time_point> times = {std::chrono::steady_clock::now()};
  for (std::int32_t i = 0; i < test.generated; ++i) {
    VN_TRY(run_step(plan, timing.steps));
    times.push_back(std::chrono::steady_clock::now());
  }
  for (std::size_t i = kWindowSteps; i < times.size(); ++i) {
    const std::chrono::duration<double> window = times[i] - times[i - kWindowSteps];
    timing.slowest_window = std::max(timing.slowest_window, window.count());
  }
  timing.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  timing.cpu_seconds = cpu_seconds() - cpu_start;
  return timing;
}

Result<TestResult> ModelBench::run(const Test& test, std::int32_t depth, std::int32_t repeat) {
  Test warm_up = test;
  warm_up.prompt = std::min(test.prompt, batch_tokens_);
  warm_up.generated = std::min(test.generated, 2);
  VN_TRY(time_once(warm_up, depth));
  VN_ASSIGN(const auto logits, loaded_->runner->logits(0));
  VN_TRY(check_logits(logits));

  const auto tokens = static_cast<double>(test.tokens());
  std::vector<double> rates, cpu, shares, reads, dots;
  Cost total;
  ExpertExecutor& experts = *loaded_->experts.executor;
  const ExpertMoves before = experts.moves();
  double all_seconds = 0.0;
  double slowest_window = 0.0;
  for (std::int32_t i = 0; i < repeat; ++i) {
    VN_ASSIGN(const Ceilings ceilings, loaded_->backend->measure_ceilings(clock_));
    VN_ASSIGN(const Timing timing, time_once(test, depth));
    total = {};
    double floor = 0.0;
    for (const Cost& step : timing.steps) {
      total += step;
      floor += step.floor_seconds(ceilings);
    }
    const double seconds = clock_ == BenchClock::kCpu ? timing.cpu_seconds / threads_ : timing.seconds;
    all_seconds += timing.seconds;
    slowest_window = std::max(slowest_window, timing.slowest_window);
    rates.push_back(tokens / seconds);
    cpu.push_back(timing.cpu_seconds / tokens);
    shares.push_back(floor / seconds);
    reads.push_back(ceilings.read_gb_s);
    dots.push_back(ceilings.dot_gflop_s);
  }
  TestResult result;
  result.test = test;
  result.depth = depth;
  result.tok_s = spread_of(rates);
  result.cpu_s_per_tok = spread_of(cpu).median;
  result.weight_bytes_per_token = total.weight_bytes / tokens;
  result.cache_bytes_per_token = total.cache_bytes / tokens;
  result.gb_s = (total.weight_bytes + total.cache_bytes) / tokens * result.tok_s.median * 1e-9;
  result.gflop_s = total.flops / tokens * result.tok_s.median * 1e-9;
  result.limit = {spread_of(reads).median, spread_of(dots).median};
  result.share_of_limit = spread_of(shares).median;
  if (test.generated > 0) result.kernels_a_step = launches_of_step(*loaded_->backend);
  if (slowest_window > 0.0) {
    result.slowest_window_tok_s = static_cast<double>(kWindowSteps) * test.sequences / slowest_window;
  }
  result.experts = experts.moves();
  result.experts.found -= before.found;
  result.experts.moved -= before.moved;
  result.experts.on_host -= before.on_host;
  result.experts.moved_bytes -= before.moved_bytes;
  result.moved_gb_s = static_cast<double>(result.experts.moved_bytes) / all_seconds * 1e-9;
  return result;
}

}  // namespace vernier::bench
