#include "runtime/loaded_model.h"

#include <algorithm>
#include <chrono>
#include <limits>

#include "model/activations.h"
#include "model/cache_scales.h"
#include "placement/routing_trace.h"

namespace vernier {
namespace {

constexpr std::int32_t kDefaultContext = 8192;
constexpr std::int32_t kMaxContext = 1 << 24;
constexpr std::int32_t kPageSize = 32;

struct KvType {
  std::string_view name;
  DType dtype;
};
constexpr KvType kKvTypes[] = {{"bf16", DType::kBF16}, {"f32", DType::kF32}, {"fp8", DType::kF8E4M3}};

/// Rows of logits of one step: one a sequence, and some so that scoring a text goes in chunks.
std::int32_t max_outputs(const BatchLimits& limits) { return std::max(limits.sequences, limits.scored); }

BatchLimits batch_limits(const EngineOptions& options, std::int32_t tokens) {
  return {tokens, options.max_sequences, options.score_rows};
}

Status check_options(const EngineOptions& options) {
  const auto check = [](std::string_view name, std::int64_t value, std::int64_t low, std::int64_t high) -> Status {
    if (value >= low && value <= high) return {};
    return fail(ErrorCode::kInvalidArgument, "{} must be in {}..{}, found {}", name, low, high, value);
  };
  VN_TRY(check("threads", options.threads, 0, 1024));
  VN_TRY(check("context", options.context, 0, kMaxContext));
  VN_TRY(check("max_sequences", options.max_sequences, 1, 1024));
  VN_TRY(check("batch_tokens", options.batch_tokens, 0, 65536));
  VN_TRY(check("score_rows", options.score_rows, 1, 4096));
  return {};
}

Result<Precision> parse_precision(std::string_view name) {
  if (name == "bf16") return Precision::kBf16;
  if (name == "f32") return Precision::kF32;
  return fail(ErrorCode::kInvalidArgument, "unknown precision '{}'; known: bf16, f32", escape(name));
}

/// The first problem of the account, with the number of the others.
Status first_problem(const OpenedModel& opened) {
  const Accounting& account = opened.resolved.accounting();
  if (account.problems.empty()) return {};
  Error error = with_context(account.problems.front(), opened.files.name());
  if (account.problems.size() > 1) {
    error.message += fmt::format(" (and {} more problems)", account.problems.size() - 1);
    error.hint = "'vernier inspect' lists them all";
  }
  return tl::unexpected(std::move(error));
}

void collect_eos(LoadedModel& loaded, const ModelConfig& config, const GenerationConfig& generation) {
  const auto add = [&](std::int64_t id) {
    if (id >= 0 && id < config.vocab_size) loaded.eos_ids.push_back(static_cast<std::int32_t>(id));
  };
  for (const std::int64_t id : config.eos_ids) add(id);
  for (const std::int64_t id : generation.eos_ids) add(id);
  if (loaded.tokenizer) {
    for (const std::int32_t id : loaded.tokenizer->end_of_generation_ids()) add(id);
  }
  std::sort(loaded.eos_ids.begin(), loaded.eos_ids.end());
  loaded.eos_ids.erase(std::unique(loaded.eos_ids.begin(), loaded.eos_ids.end()), loaded.eos_ids.end());
}

/// Tokenizer, template, generation defaults. A model without a tokenizer still runs on ids.
Status read_side_files(const OpenedModel& opened, LoadedModel& loaded) {
  const ModelConfig& config = opened.description.config;
  loaded.usable_vocab = config.vocab_size;
  auto tokenizer = open_tokenizer(opened.files);
  if (tokenizer) {
    loaded.tokenizer = std::move(*tokenizer);
    loaded.usable_vocab = std::min<std::int64_t>(config.vocab_size, loaded.tokenizer->vocab_size());
    if (loaded.tokenizer->vocab_size() > config.vocab_size) {
      return fail(ErrorCode::kCorrupt, "{}: the tokenizer has {} tokens, the model {} rows", opened.files.name(),
                  loaded.tokenizer->vocab_size(), config.vocab_size);
    }
  } else if (tokenizer.error().code == ErrorCode::kUnsupported) {
    loaded.tokenizer_problem = tokenizer.error().message;
    loaded.info.warnings.push_back(tokenizer.error().message);
  } else {
    return tl::unexpected(with_context(std::move(tokenizer).error(), opened.files.name()));
  }
  VN_ASSIGN(loaded.chat_template, open_chat_template(opened.files));
  VN_ASSIGN(const GenerationConfig generation, open_generation_config(opened.files));
  loaded.defaults = generation.defaults;
  collect_eos(loaded, config, generation);
  return {};
}

void fill_info(const OpenedModel& opened, const EngineOptions& options, LoadedModel& loaded) {
  const Accounting& account = opened.resolved.accounting();
  ModelInfo& info = loaded.info;
  info.name = opened.files.name();
  info.architecture = opened.description.config.architecture;
  info.device = loaded.backend->name();
  info.precision = options.precision;
  info.experts = loaded.experts.mode;
  info.expert_store = loaded.experts.store;
  info.experts_per_token = static_cast<std::int32_t>(opened.description.config.experts_per_token);
  info.vocab_size = opened.description.config.vocab_size;
  info.context_length = opened.description.config.context_length;
  info.parameters = account.parameters;
  info.weight_bytes = account.weight_bytes;
  info.warnings.insert(info.warnings.end(), account.warnings.begin(), account.warnings.end());
  const auto& warnings = opened.files.warnings();
  info.warnings.insert(info.warnings.end(), warnings.begin(), warnings.end());
}

Result<ExpertPlacement> choose_placement(const OpenedModel& opened, const EngineOptions& options,
                                         const BackendOptions& backend_options, const MemoryNeeds& needs,
                                         const LoadedModel& loaded) {
  const ModelConfig& config = opened.description.config;
  ExpertRequest request{
      .mode = options.experts, .cache = options.expert_cache, .store = options.expert_store, .host = backend_options};
  request.expert_bytes = opened.resolved.accounting().expert_bytes;
  const auto sparse_layers = std::count(config.sparse.begin(), config.sparse.end(), true);
  request.num_experts = config.num_experts * (sparse_layers + opened.resolved.accounting().mtp_layers);
  MemoryNeeds dense = needs;
  dense.weight_bytes -= request.expert_bytes;
  const MemoryInfo memory = loaded.backend->memory();
  const MemoryPlan plan = plan_memory(dense, memory, loaded.info.context, options.max_sequences);
  // Kernels' working memory isn't in the plan.
  const std::uint64_t reserve = memory.available_bytes / 32;
  const std::uint64_t taken = plan.total_bytes + reserve;
  request.free_bytes = taken < memory.available_bytes ? memory.available_bytes - taken : 0;
  VN_ASSIGN(ExpertPlacement placement, place_experts(request, *loaded.backend));
  if (!options.routing_trace.empty()) {
    VN_ASSIGN(placement.executor,
              RecordingExpertExecutor::create(std::move(placement.executor), *loaded.backend, options.routing_trace));
  }
  return placement;
}

/// Weights, model and caches, after everything has been decided.
Status build(const OpenedModel& opened, const EngineOptions& options, DType kv_dtype, LoadedModel& loaded) {
  const Architecture& architecture = *opened.description.architecture;
  VN_ASSIGN(const WeightSet weights, load(opened.resolved, {.check_blocks = options.check_weights}));
  loaded.info.warnings.insert(loaded.info.warnings.end(), weights.warnings.begin(), weights.warnings.end());
  for (const auto& [role, matrices] : weights.matrices) {
    for (const Weight& weight : matrices) VN_TRY(loaded.backend->supports(weight.format));
  }
  loaded.traffic = weight_traffic(weights.matrices);
  VN_ASSIGN(loaded.model, architecture.build(opened.description.config, weights,
                                             {loaded.backend.get(), loaded.experts.executor.get()}));
  const CacheShapes shapes = architecture.caches(opened.description.config);
  const CacheShape cache_shape{shapes.kv, shapes.state, kv_dtype, kPageSize,
                               cache_scales(weights, opened.description.config, shapes.kv.size())};
  const auto is_stored = [](const KvScales& scales) { return scales.is_stored; };
  loaded.info.kv = std::find_if(std::begin(kKvTypes), std::end(kKvTypes), [&](const KvType& type) {
                     return type.dtype == kv_dtype;
                   })->name;
  loaded.info.kv_scaled_layers =
      static_cast<std::int32_t>(std::count_if(cache_shape.scales.begin(), cache_shape.scales.end(), is_stored));
  const std::int32_t pages_a_sequence = (loaded.info.context + kPageSize - 1) / kPageSize;
  VN_ASSIGN(KvCache cache, KvCache::create(*loaded.backend, cache_shape, pages_a_sequence * options.max_sequences,
                                           options.max_sequences));
  loaded.cache = std::make_unique<KvCache>(std::move(cache));
  loaded.info.kv_bytes = loaded.cache->size_bytes();
  const BatchLimits limits = batch_limits(options, loaded.batch_tokens);
  VN_ASSIGN(StepRunner runner,
            StepRunner::create(*loaded.backend, *loaded.model, *loaded.cache, limits.tokens, max_outputs(limits)));
  loaded.info.activation_bytes = runner.reserved_bytes();
  loaded.runner = std::make_unique<StepRunner>(std::move(runner));
  VN_TRY(loaded.experts.executor->prepare());
  loaded.runner->watch_steps(*loaded.experts.executor);
  for (std::string& warning : loaded.backend->warnings()) loaded.info.warnings.push_back(std::move(warning));
  return {};
}

}  // namespace

Result<DType> parse_kv_dtype(std::string_view kv, std::string_view precision) {
  if (kv.empty()) return precision == "f32" ? DType::kF32 : DType::kBF16;
  for (const KvType& type : kKvTypes) {
    if (kv == type.name) return type.dtype;
  }
  return fail(ErrorCode::kInvalidArgument, "unknown --kv '{}'; known: bf16, f32, fp8", escape(kv));
}

std::int32_t choose_context(std::int32_t asked, std::int64_t model_length) {
  if (asked > 0) return asked;
  return static_cast<std::int32_t>(std::clamp<std::int64_t>(model_length, 1, kDefaultContext));
}

std::int32_t choose_batch(const Backend& backend, const ModelConfig& config, std::int32_t context,
                          std::int32_t sequences) {
  constexpr std::int32_t kFewest = 256;
  constexpr std::uint64_t kShare = 16;
  const std::uint64_t budget = backend.memory().available_bytes / kShare;
  std::int32_t tokens = backend.suitable_batch_tokens();
  while (tokens > kFewest && activation_bytes(config, tokens, max_outputs({tokens, sequences})) > budget) tokens /= 2;
  const std::int64_t room = std::int64_t{context} * sequences;
  return static_cast<std::int32_t>(std::max<std::int64_t>(std::min<std::int64_t>(tokens, room), sequences));
}

MemoryNeeds memory_needs(const OpenedModel& opened, DType kv_dtype, const BatchLimits& limits) {
  const ModelConfig& config = opened.description.config;
  const CacheShapes shapes = opened.description.architecture->caches(config);
  const CacheShape shape{shapes.kv, shapes.state, kv_dtype, kPageSize};
  MemoryNeeds needs;
  needs.weight_bytes = opened.resolved.accounting().weight_bytes;
  needs.kv_bytes_per_token = kv_bytes_per_token(shape);
  needs.state_bytes_per_sequence = state_bytes_per_sequence(shape);
  needs.activation_bytes = activation_bytes(config, limits.tokens, max_outputs(limits));
  return needs;
}

Result<OpenedModel> open_for_engine(const EngineOptions& options) {
  VN_TRY(check_options(options));
  VN_TRY(parse_precision(options.precision));
  VN_ASSIGN(const DType kv_dtype, parse_kv_dtype(options.kv, options.precision));
  OpenOptions open_options;
  open_options.lenient = options.lenient;
  open_options.allowed_roots = options.allowed_roots;
  return open_model(options.model, open_options, kv_dtype);
}

Result<std::unique_ptr<LoadedModel>> prepare_model(const OpenedModel& opened, const EngineOptions& options) {
  VN_TRY(check_options(options));
  VN_ASSIGN(const Precision precision, parse_precision(options.precision));
  VN_ASSIGN(const DType kv_dtype, parse_kv_dtype(options.kv, options.precision));
  VN_TRY(first_problem(opened));
  if (opened.description.architecture->build == nullptr) {
    return fail(ErrorCode::kUnsupported, "{}: architecture '{}' can be inspected but not run in this version",
                opened.files.name(), opened.description.config.architecture);
  }

  auto loaded = std::make_unique<LoadedModel>();
  BackendOptions backend_options;
  backend_options.precision = precision;
  backend_options.num_threads = options.threads;
  backend_options.cpu_isa = options.cpu_isa;
  backend_options.graphs = options.cuda_graphs;
  VN_ASSIGN(loaded->backend, create_backend(options.device, backend_options));
  loaded->files = opened.files.files();
  VN_TRY(read_side_files(opened, *loaded));
  loaded->info.context = choose_context(options.context, opened.description.config.context_length);

  BatchLimits limits = batch_limits(options, options.batch_tokens);
  if (limits.tokens == 0) {
    limits.tokens =
        choose_batch(*loaded->backend, opened.description.config, loaded->info.context, options.max_sequences);
  }
  loaded->batch_tokens = limits.tokens;

  MemoryNeeds needs = memory_needs(opened, kv_dtype, limits);
  const MemoryInfo memory = loaded->backend->memory();
  VN_ASSIGN(loaded->experts, choose_placement(opened, options, backend_options, needs, *loaded));
  const std::uint64_t expert_bytes = opened.resolved.accounting().expert_bytes;
  if (!loaded->experts.on_device) needs.weight_bytes -= expert_bytes;
  if (loaded->experts.on_device && !loaded->backend->is_host()) needs.movable_bytes = expert_bytes;
  VN_TRY(check_fits(plan_memory(needs, memory, loaded->info.context, options.max_sequences), needs, memory));
  fill_info(opened, options, *loaded);
  if (expert_bytes == 0 && options.experts != "auto") {
    loaded->info.warnings.push_back(
        fmt::format("the model has no experts: --experts {} changes nothing", options.experts));
  }
  if (options.expert_store == "auto" && loaded->experts.store == "file") {
    loaded->info.warnings.push_back(fmt::format(
        "{:.1f} GiB of experts don't fit into host memory beside the rest and stay in the file: those that the "
        "GPU lacks come through the page cache",
        static_cast<double>(expert_bytes) / 1073741824.0));
  }
  return loaded;
}

Status finish_model(const OpenedModel& opened, const EngineOptions& options, LoadedModel& loaded) {
  VN_ASSIGN(const DType kv_dtype, parse_kv_dtype(options.kv, options.precision));
  return build(opened, options, kv_dtype, loaded);
}

Result<std::unique_ptr<LoadedModel>> load_model(const EngineOptions& options) {
  const auto start = std::chrono::steady_clock::now();
  VN_ASSIGN(const OpenedModel opened, open_for_engine(options));
  VN_ASSIGN(auto loaded, prepare_model(opened, options));
  VN_TRY(finish_model(opened, options, *loaded));
  loaded->info.load_seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return loaded;
}

}  // namespace vernier
