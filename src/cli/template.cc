// `vernier template`: a conversation rendered by a chat template.
#include <filesystem>
#include <memory>

#include "chat/chat_template.h"
#include "cli/jsonl.h"
#include "cli/model_flags.h"
#include "cli/prompt.h"
#include "cli/report.h"
#include "cli/verb.h"
#include "vernier/tokenizer.h"

namespace vernier::cli {
namespace {

struct TemplateFlags {
  std::string model;
  std::optional<std::string> prompt;
  std::string system;
  std::string file;
  bool jsonl = false;
};

/// A template with the special-token texts that its model gives it.
struct Loaded {
  ChatTemplate chat_template;
  std::string bos;
  std::string eos;
  bool from_model = false;
};

Result<Loaded> load(const std::string& model) {
  if (std::filesystem::path(model).extension() == ".jinja") {
    VN_ASSIGN(const std::string source, read_text(model));
    VN_ASSIGN(ChatTemplate chat_template, ChatTemplate::compile(source));
    return Loaded{std::move(chat_template), {}, {}, false};
  }
  const auto tokenizer = TokenizerFile::open(model);
  if (!tokenizer) return tl::unexpected(tokenizer.error());
  if (tokenizer->chat_template().empty()) return fail(ErrorCode::kUnsupported, "the model has no chat template");
  VN_ASSIGN(ChatTemplate chat_template, ChatTemplate::compile(tokenizer->chat_template()));
  return Loaded{std::move(chat_template), tokenizer->bos_text(), tokenizer->eos_text(), true};
}

Result<std::string> render(const Loaded& loaded, const Json& json) {
  VN_ASSIGN(TemplateRequest request, parse_template_request(json));
  if (loaded.from_model && !request.bos_token) request.bos_token = loaded.bos;
  if (loaded.from_model && !request.eos_token) request.eos_token = loaded.eos;
  return loaded.chat_template.render(request);
}

Result<Json> single_request(const TemplateFlags& flags) {
  if (!flags.prompt) {
    VN_ASSIGN(const std::string text, read_text(flags.file.empty() ? "-" : flags.file));
    return parse_json(text);
  }
  JsonArray messages;
  if (!flags.system.empty()) messages.push_back(make_message("system", flags.system));
  messages.push_back(make_message("user", *flags.prompt));
  JsonObject request;
  request.set("messages", std::move(messages));
  request.set("add_generation_prompt", true);
  return Json(std::move(request));
}

int template_verb(const TemplateFlags& flags) {
  const auto loaded = load(flags.model);
  if (!loaded) return report(loaded.error());
  if (flags.jsonl) {
    return answer_lines([&](const Json& json) -> Result<Json> {
      VN_ASSIGN(std::string text, render(*loaded, json));
      return Json(std::move(text));
    });
  }
  const auto request = single_request(flags);
  if (!request) return report(request.error());
  const auto text = render(*loaded, *request);
  if (!text) {
    report(text.error());
    return kExitBadInput;
  }
  print(*text);
  return kExitDone;
}

}  // namespace

VerbBody declare_template(CLI::App& app) {
  const auto flags = std::make_shared<TemplateFlags>();
  add_model_argument(app, flags->model);
  app.add_option("-p,--prompt", flags->prompt, "render this user message, ready for an answer")->option_text("TEXT");
  app.add_option("--system", flags->system, "system message before it")->option_text("TEXT");
  app.add_option("-f,--file", flags->file, "read a request object from a file (default: standard input)")
      ->option_text("FILE");
  app.add_flag("--jsonl", flags->jsonl, "answer each line of standard input: a request object");
  return [flags] { return template_verb(*flags); };
}

}  // namespace vernier::cli
