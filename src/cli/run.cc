// `vernier run`: one prompt, one answer.
#include <chrono>
#include <cstdio>
#include <memory>

#include "base/json.h"
#include "cli/interrupt.h"
#include "cli/model_flags.h"
#include "cli/prompt.h"
#include "cli/report.h"
#include "cli/verb.h"

namespace vernier::cli {
namespace {

struct RunFlags {
  ModelFlags model;
  SamplingFlags sampling;
  std::optional<std::string> prompt;
  std::string file;
  std::optional<std::string> ids;
  std::string system;
  bool raw = false;
  bool json = false;
};

struct Answer {
  std::vector<std::int32_t> ids;
  std::string text;
  std::vector<TokenLogprob> logprobs;
  FinishReason finish = FinishReason::kLength;
  double prompt_seconds = 0.0;
  double decode_seconds = 0.0;
};

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

Result<std::vector<std::int32_t>> prompt_ids(const RunFlags& flags, const Engine& engine) {
  if (flags.ids) {
    auto ids = parse_ids(*flags.ids);
    if (!ids) return tl::unexpected(with_context(std::move(ids).error(), "--ids"));
    return ids;
  }
  std::string text;
  if (flags.prompt) {
    text = *flags.prompt;
  } else {
    VN_ASSIGN(text, read_text(flags.file.empty() ? "-" : flags.file));
  }
  if (flags.raw || engine.chat_template().empty()) {
    if (!flags.system.empty()) {
      return fail(ErrorCode::kInvalidArgument, "--system needs a chat template{}",
                  flags.raw ? " and --raw asks for none" : " and the model has none");
    }
    return raw_prompt(engine, text);
  }
  JsonArray messages;
  if (!flags.system.empty()) messages.push_back(make_message("system", flags.system));
  messages.push_back(make_message("user", text));
  return chat_prompt(engine, messages);
}

/// Reads the request's events to the end, streaming text unless --json.
Result<Answer> generate(Engine& engine, Request request, bool stream) {
  Answer answer;
  auto start = Clock::now();
  auto handle = engine.submit(std::move(request));
  if (!handle) return tl::unexpected(handle.error());
  const InterruptScope interrupt;
  while (auto event = handle->next()) {
    if (event->error) return tl::unexpected(*event->error);
    if (event->id) {
      if (answer.ids.empty()) {
        answer.prompt_seconds = seconds_since(start);
        start = Clock::now();
      }
      answer.ids.push_back(*event->id);
    }
    if (event->logprob) answer.logprobs.push_back(*event->logprob);
    answer.text += event->text;
    if (stream && !event->text.empty()) {
      if (!print(event->text) || std::fflush(stdout) != 0)
        return fail(ErrorCode::kIo, "cannot write to standard output");
    }
    if (event->finish) answer.finish = *event->finish;
    if (InterruptScope::raised()) handle->cancel();
  }
  answer.decode_seconds = seconds_since(start);
  return answer;
}

Json logprobs_json(const std::vector<TokenLogprob>& logprobs) {
  JsonArray list;
  for (const TokenLogprob& entry : logprobs) {
    JsonObject item;
    item.set("id", entry.id);
    item.set("logprob", static_cast<double>(entry.logprob));
    JsonArray top;
    for (const auto& [id, logprob] : entry.top) top.push_back(JsonArray{Json(id), Json(static_cast<double>(logprob))});
    item.set("top", std::move(top));
    list.push_back(std::move(item));
  }
  return list;
}

Json ids_json(const std::vector<std::int32_t>& ids) {
  JsonArray list;
  for (const std::int32_t id : ids) list.push_back(id);
  return list;
}

Json answer_json(const ModelInfo& info, const std::vector<std::int32_t>& prompt, const Answer& answer,
                 std::uint64_t seed) {
  JsonObject model;
  model.set("name", info.name);
  model.set("architecture", info.architecture);
  model.set("parameters", info.parameters);
  JsonObject timings;
  timings.set("load_s", info.load_seconds);
  timings.set("prompt_tokens", static_cast<std::int64_t>(prompt.size()));
  timings.set("prompt_s", answer.prompt_seconds);
  timings.set("decode_tokens", static_cast<std::int64_t>(answer.ids.size()));
  timings.set("decode_s", answer.decode_seconds);
  JsonObject speculation;
  speculation.set("drafted", 0);
  speculation.set("accepted", 0);
  JsonObject memory;
  memory.set("weights_bytes", info.weight_bytes);
  memory.set("kv_bytes", info.kv_bytes);
  JsonObject object;
  object.set("model", std::move(model));
  object.set("device", info.device);
  object.set("experts", info.experts);
  object.set("precision", info.precision);
  object.set("seed", seed);
  object.set("prompt_ids", ids_json(prompt));
  object.set("ids", ids_json(answer.ids));
  object.set("text", answer.text);
  object.set("finish_reason", finish_reason_name(answer.finish));
  if (!answer.logprobs.empty()) object.set("logprobs", logprobs_json(answer.logprobs));
  object.set("timings", std::move(timings));
  object.set("speculation", std::move(speculation));
  object.set("memory", std::move(memory));
  return object;
}

void print_statistics(const std::vector<std::int32_t>& prompt, const Answer& answer) {
  const double decoded = static_cast<double>(answer.ids.size()) - 1.0;
  std::fprintf(stderr, "%zu prompt tokens in %.2f s, %zu tokens generated", prompt.size(), answer.prompt_seconds,
               answer.ids.size());
  if (decoded > 0.0) std::fprintf(stderr, ", %.1f tokens/s", decoded / answer.decode_seconds);
  std::fprintf(stderr, " (%s)\n", std::string(finish_reason_name(answer.finish)).c_str());
}

int run(const RunFlags& flags) {
  if ((flags.prompt ? 1 : 0) + (flags.ids ? 1 : 0) + (flags.file.empty() ? 0 : 1) > 1) {
    return report_usage("give one of -p, -f and --ids");
  }
  auto opened = flags.model.open();
  if (!opened) return report(opened.error());
  Engine& engine = **opened;
  auto prompt = prompt_ids(flags, engine);
  if (!prompt) return report(prompt.error());
  auto sampling = flags.sampling.resolve(engine.defaults());
  if (!sampling) return report(sampling.error());
  const auto answer = generate(engine, {*prompt, *sampling}, !flags.json);
  if (!answer) return report(answer.error());
  if (flags.json) {
    print(to_json_text(answer_json(engine.info(), *prompt, *answer, sampling->seed)) + "\n");
  } else {
    print("\n");
    std::fflush(stdout);
    if (!flags.model.quiet) print_statistics(*prompt, *answer);
  }
  return answer->finish == FinishReason::kCancelled ? kExitInterrupted : kExitDone;
}

}  // namespace

VerbBody declare_run(CLI::App& app) {
  const auto flags = std::make_shared<RunFlags>();
  add_model_flags(app, flags->model);
  add_sampling_flags(app, flags->sampling);
  app.add_option("-p,--prompt", flags->prompt, "the prompt")->option_text("TEXT");
  app.add_option("-f,--file", flags->file, "read the prompt from a file ('-': standard input, the default)")
      ->option_text("FILE");
  app.add_option("--ids", flags->ids, "the prompt as token ids, taken as they are")->option_text("1,2,3");
  app.add_option("--system", flags->system, "system message")->option_text("TEXT");
  app.add_flag("--raw", flags->raw, "don't apply the chat template");
  app.add_flag("--json", flags->json, "print one JSON object instead of text");
  return [flags] { return run(*flags); };
}

}  // namespace vernier::cli
