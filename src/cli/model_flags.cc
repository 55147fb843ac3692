#include "cli/model_flags.h"

#include <charconv>
#include <cstdio>
#include <random>

#include "base/json.h"
#include "cli/report.h"

namespace vernier::cli {
namespace {

constexpr float kDefaultTemperature = 0.8F;
constexpr float kDefaultTopP = 0.95F;

template <class Number>
bool parse_number(std::string_view text, Number& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}

void log_line(const ModelFlags& flags, std::string_view level, const std::string& message) {
  if (flags.log_format == "json") {
    JsonObject line;
    line.set("level", std::string(level));
    line.set("message", message);
    std::fprintf(stderr, "%s\n", to_json_text(line).c_str());
  } else if (level == "warning") {
    warn(message);
  } else {
    std::fprintf(stderr, "%s\n", message.c_str());
  }
}

}  // namespace

void add_model_argument(CLI::App& app, std::string& model) {
  app.add_option("model,-m,--model", model, "file, folder, name, or 'demo' (the default)")->option_text("MODEL");
}

void add_model_flags(CLI::App& app, ModelFlags& flags) {
  add_model_argument(app, flags.model);
  EngineOptions& engine = flags.engine;
  app.add_option("--device", engine.device, "auto, cpu, cuda[:INDEX] or reference")->capture_default_str();
  app.add_option("--cpu-isa", engine.cpu_isa, "instruction set of the cpu device, as `vernier devices` lists them")
      ->option_text("NAME");
  app.add_option("--experts", engine.experts, "auto, fused, offload, hybrid or cpu")->capture_default_str();
  app.add_option("--expert-cache", engine.expert_cache,
                 "GPU memory for experts that come and go: a size (2GiB), a share (25%) or a number");
  app.add_option("--expert-store", engine.expert_store,
                 "auto, memory or file: experts beside the GPU as a copy in host memory, or left in the file")
      ->option_text("WHERE")
      ->capture_default_str();
  app.add_flag("--batch-invariant")->description("a sequence's result depends on no other: always so");
  app.add_flag("!--no-cuda-graphs", engine.cuda_graphs, "launch each kernel of a decode step by itself on a GPU");
  app.add_option("--routing-trace", engine.routing_trace, "record the chosen experts in FILE")->type_name("FILE");
  app.add_option("--precision", engine.precision, "bf16 or f32: inputs of linears")
      ->check(CLI::IsMember({"bf16", "f32"}))
      ->capture_default_str();
  app.add_option("--kv", engine.kv,
                 "bf16, f32 or fp8: cache elements (default follows --precision); fp8 takes its scales from the file")
      ->check(CLI::IsMember({"bf16", "f32", "fp8"}));
  app.add_option("-c,--ctx", engine.context, "tokens a sequence may have (default: the model's, at most 8192)");
  app.add_option("--batch-tokens", engine.batch_tokens,
                 "tokens of one step at most; longer prompts go in chunks (default: suits the device)");
  app.add_option("-t,--threads", engine.threads, "threads (default: all usable cores)");
  app.add_flag("--lenient", engine.lenient, "take tensors that no rule explains as warnings");
  app.add_flag("!--no-check-weights", engine.check_weights, "don't scan weights for invalid codes while loading");
  app.add_option("--allow-root", flags.allow_root, "a folder that links in the model folder may lead into")
      ->option_text("DIR");
  auto* quiet = app.add_flag("-q,--quiet", flags.quiet, "no progress, no statistics");
  app.add_flag("-v,--verbose", flags.verbose, "more on stderr")->excludes(quiet);
  app.add_option("--log-format", flags.log_format, "text or json")
      ->check(CLI::IsMember({"text", "json"}))
      ->capture_default_str();
}

namespace {

std::string cache_words(const ModelInfo& info) {
  std::string words = fmt::format("{:.1f} MiB of {} caches for {} tokens",
                                  static_cast<double>(info.kv_bytes) / 1048576.0, info.kv, info.context);
  if (info.kv != "fp8") return words;
  return words + (info.kv_scaled_layers > 0 ? fmt::format(" (scales of {} layers from the file)", info.kv_scaled_layers)
                                            : std::string(" (scale 1: the file holds none)"));
}

}  // namespace

Outcome<std::unique_ptr<Engine>> ModelFlags::open() const {
  EngineOptions options = engine;
  options.model = model;
  options.allowed_roots.assign(allow_root.begin(), allow_root.end());
  auto opened = Engine::open(options);
  if (!opened) return opened;
  const ModelInfo& info = (*opened)->info();
  if (!quiet) {
    for (const std::string& warning : info.warnings) log_line(*this, "warning", warning);
  }
  if (verbose) {
    log_line(*this, "info",
             fmt::format("{}: {}, {:.1f} M parameters, {:.1f} MiB of weights, {}, device {}, precision {}, loaded in "
                         "{:.2f} s",
                         info.name, info.architecture, static_cast<double>(info.parameters) / 1e6,
                         static_cast<double>(info.weight_bytes) / 1048576.0, cache_words(info), info.device,
                         info.precision, info.load_seconds));
  }
  return opened;
}

void add_sampling_flags(CLI::App& app, SamplingFlags& flags) {
  app.add_option("-n,--max-tokens", flags.max_tokens, "tokens to generate (default: until the end or the context)");
  app.add_option("--temp", flags.temperature, "temperature; 0 is greedy");
  app.add_option("--top-k", flags.top_k, "keep the k likeliest tokens; 0 keeps all");
  app.add_option("--top-p", flags.top_p, "keep the smallest set of tokens that reaches this probability");
  app.add_option("--min-p", flags.min_p, "keep tokens at least this fraction as likely as the likeliest");
  app.add_option("--repeat-penalty", flags.repeat_penalty, "divide logits of tokens seen before");
  app.add_option("--presence-penalty", flags.presence_penalty, "subtract from logits of generated tokens");
  app.add_option("--frequency-penalty", flags.frequency_penalty, "subtract for each time a token was generated");
  app.add_option("--seed", flags.seed, "seed of the draws (default: random)");
  app.add_option("--stop", flags.stop, "end before this text; may be repeated")
      ->option_text("TEXT")
      ->allow_extra_args(false);
  app.add_flag("--ignore-eos", flags.ignore_eos, "go on past end-of-text tokens");
  app.add_option("--logit-bias", flags.logit_bias, "ID=VALUE added to a token's logit; may be repeated")
      ->option_text("ID=VALUE")
      ->allow_extra_args(false);
  app.add_option("--logprobs", flags.logprobs, "report log-probabilities and this many alternatives (with --json)");
}

Outcome<SamplingParams> SamplingFlags::resolve(const GenerationDefaults& defaults) const {
  SamplingParams params;
  const bool greedy_by_default = defaults.do_sample && !*defaults.do_sample && !defaults.temperature;
  params.temperature = temperature         ? *temperature
                       : greedy_by_default ? 0.0F
                                           : defaults.temperature.value_or(kDefaultTemperature);
  params.top_k = top_k ? *top_k : defaults.top_k.value_or(0);
  params.top_p = top_p ? *top_p : defaults.top_p.value_or(kDefaultTopP);
  params.min_p = min_p.value_or(0.0F);
  params.repeat_penalty = repeat_penalty ? *repeat_penalty : defaults.repeat_penalty.value_or(1.0F);
  params.presence_penalty = presence_penalty.value_or(0.0F);
  params.frequency_penalty = frequency_penalty.value_or(0.0F);
  params.seed = seed ? *seed : std::random_device()();
  params.max_tokens = max_tokens;
  params.stop = stop;
  params.ignore_eos = ignore_eos;
  params.logprobs = logprobs;
  for (const std::string& entry : logit_bias) {
    const std::size_t equals = entry.find('=');
    std::pair<std::int32_t, float> bias;
    if (equals == std::string::npos || !parse_number(std::string_view(entry).substr(0, equals), bias.first) ||
        !parse_number(std::string_view(entry).substr(equals + 1), bias.second)) {
      return Error{
          ErrorCode::kInvalidArgument, fmt::format("--logit-bias must be ID=VALUE, found '{}'", escape(entry)), {}};
    }
    params.logit_bias.push_back(bias);
  }
  return params;
}

}  // namespace vernier::cli
