// The public inspect(): headers and configuration of a checkpoint, its account, and a memory plan.
#include "runtime/loaded_model.h"
#include "vernier/model.h"

namespace vernier {
namespace {

std::vector<TensorSummary> list_tensors(const CheckpointFiles& files) {
  std::vector<TensorSummary> list;
  list.reserve(files.tensors().size());
  for (const TensorRecord& record : files.tensors()) {
    list.push_back({record.name, std::string(record.type_name), record.shape, record.extent.size,
                    files.files()[record.file_index]->name(), record.extent.offset});
  }
  return list;
}

Result<FitSummary> plan_fit(const OpenedModel& opened, const InspectOptions& options, DType kv_dtype) {
  VN_ASSIGN(const auto backend, create_backend(options.device, {}));
  FitSummary fit;
  fit.device = backend->name();
  const std::int32_t context = choose_context(options.context, opened.description.config.context_length);
  fit.context = context;
  const std::int32_t batch = choose_batch(*backend, opened.description.config, context, 1);
  const MemoryNeeds needs = memory_needs(opened, kv_dtype, {batch, 1});
  const MemoryInfo memory = backend->memory();
  const MemoryPlan plan = plan_memory(needs, memory, fit.context, 1);
  fit.weights_bytes = needs.weight_bytes;
  fit.kv_bytes_per_token = needs.kv_bytes_per_token;
  fit.state_bytes_per_sequence = needs.state_bytes_per_sequence;
  fit.needed_bytes = plan.total_bytes;
  fit.available_bytes = memory.available_bytes;
  fit.largest_context = plan.largest_context;
  fit.fits = plan.fits;
  const std::uint64_t expert_bytes = opened.resolved.accounting().expert_bytes;
  if (!plan.fits && !backend->is_host() && expert_bytes > 0) {
    VN_ASSIGN(const auto host, create_backend("cpu", {}));
    fit.expert_bytes = expert_bytes;
    fit.host_available_bytes = host->memory().available_bytes;
    fit.fits_without_experts = plan.total_bytes - expert_bytes < memory.available_bytes;
    VN_ASSIGN(fit.expert_store, choose_expert_store("auto", expert_bytes, fit.host_available_bytes));
  }
  return fit;
}

Result<Inspection> inspect_model(const InspectOptions& options) {
  VN_ASSIGN(const DType kv_dtype, parse_kv_dtype(options.kv, "bf16"));
  OpenOptions open_options;
  open_options.lenient = options.lenient;
  open_options.allowed_roots = options.allowed_roots;
  VN_ASSIGN(const OpenedModel opened, open_model(options.model, open_options, kv_dtype));
  const ModelConfig& config = opened.description.config;
  const Accounting& account = opened.resolved.accounting();

  Inspection result;
  result.name = opened.files.name();
  result.architecture = config.architecture;
  result.container = container_name(opened.files.container());
  result.dialect = account.dialect;
  result.runnable = opened.description.architecture->build != nullptr;
  result.parameters = account.parameters;
  result.layers = config.num_layers;
  result.mtp_layers = account.mtp_layers;
  result.context_length = config.context_length;
  result.vocab_size = config.vocab_size;
  if (config.num_experts > 0) result.experts.emplace(config.num_experts, config.experts_per_token);
  result.total_tensors = account.total;
  result.used_tensors = account.used;
  result.ignored_tensors = account.ignored;
  result.refused_tensors = account.refused;
  result.used_cache_scales = account.cache_scales;
  for (const auto& [name, use] : account.formats) result.formats[name] = {use.tensors, use.bytes};
  result.weight_bytes = account.weight_bytes;
  result.warnings = opened.files.warnings();
  result.warnings.insert(result.warnings.end(), account.warnings.begin(), account.warnings.end());
  result.problems = account.problems;
  for (const auto& file : opened.files.files()) result.files.push_back(file->name());
  if (options.list_tensors) result.tensors = list_tensors(opened.files);
  if (options.fit) {
    VN_ASSIGN(result.fit, plan_fit(opened, options, kv_dtype));
  }
  if (options.check_blocks && result.problems.empty()) {
    if (const auto weights = load(opened.resolved, {.check_blocks = true}); !weights) {
      result.problems.push_back(weights.error());
    }
  }
  return result;
}

}  // namespace

Outcome<Inspection> inspect(const InspectOptions& options) {
  auto result = inspect_model(options);
  if (!result) return std::move(result).error();
  return std::move(*result);
}

}  // namespace vernier
