// `vernier chat`: a conversation in the terminal.
#include <chrono>
#include <cstdio>
#include <fstream>
#include <memory>

#include "cli/interrupt.h"
#include "cli/line_editor.h"
#include "cli/model_flags.h"
#include "cli/prompt.h"
#include "cli/report.h"
#include "cli/verb.h"

namespace vernier::cli {
namespace {

constexpr std::string_view kHelp =
    "/reset         forget the conversation\n"
    "/system TEXT   set the system message (without TEXT: none) and start anew\n"
    "/save FILE     write the conversation as JSON\n"
    "/load FILE     read one back\n"
    "/regen         answer the last message again\n"
    "/stats         speed and size of the conversation\n"
    "/quit          leave (also Ctrl-D); Ctrl-C stops an answer\n";

struct ChatFlags {
  ModelFlags model;
  SamplingFlags sampling;
  std::string system;
};

class Conversation {
 public:
  Conversation(Engine& engine, const ChatFlags& flags, SamplingParams sampling)
      : engine_(engine), sampling_(std::move(sampling)), system_(flags.system) {
    reset();
  }

  /// Answers one line: a command or a message. False: leave.
  bool take(const std::string& line) {
    if (line.empty()) return true;
    if (line.front() != '/') {
      messages_.push_back(make_message("user", line));
      answer();
      return true;
    }
    const std::size_t space = line.find(' ');
    const std::string command = line.substr(0, space);
    const std::string rest = space == std::string::npos ? "" : line.substr(space + 1);
    if (command == "/quit") return false;
    obey(command, rest);
    return true;
  }

 private:
  void reset() {
    messages_.clear();
    if (!system_.empty()) messages_.push_back(make_message("system", system_));
  }

  void obey(const std::string& command, const std::string& rest) {
    if (command == "/reset") {
      reset();
    } else if (command == "/system") {
      system_ = rest;
      reset();
    } else if (command == "/save") {
      save(rest);
    } else if (command == "/load") {
      load(rest);
    } else if (command == "/regen") {
      regenerate();
    } else if (command == "/stats") {
      print(fmt::format("{} messages, {} tokens read, {} generated in {:.1f} s\n", messages_.size(), tokens_read_,
                        tokens_generated_, seconds_));
    } else {
      print(std::string(kHelp));
    }
    std::fflush(stdout);
  }

  void save(const std::string& path) {
    std::ofstream file(path);
    file << to_json_text(Json(messages_), 1) << "\n";
    if (!file.flush()) warn("cannot write '" + escape(path) + "'");
  }

  void load(const std::string& path) {
    const auto text = read_text(path);
    if (!text) return warn(text.error().message);
    auto json = parse_json(*text);
    if (!json || !json->is_array()) return warn("'" + escape(path) + "' holds no conversation");
    for (const Json& message : json->as_array()) {
      const Json* role = message.find("role");
      if (role == nullptr || !role->is_string()) return warn("'" + escape(path) + "' has a message without a role");
    }
    messages_ = std::move(json->as_array());
  }

  void regenerate() {
    while (!messages_.empty() && is_from(messages_.back(), "assistant")) messages_.pop_back();
    if (messages_.empty() || !is_from(messages_.back(), "user")) return warn("there is no message to answer");
    ++sampling_.seed;
    answer();
  }

  static bool is_from(const Json& message, std::string_view role) {
    const Json* found = message.find("role");
    return found != nullptr && found->is_string() && found->as_string() == role;
  }

  void answer() {
    const auto prompt = engine_.chat_template().empty() ? plain_prompt() : chat_prompt(engine_, messages_);
    if (!prompt) return drop_message(prompt.error());
    auto handle = engine_.submit({*prompt, sampling_});
    if (!handle) return drop_message(handle.error());
    const auto start = std::chrono::steady_clock::now();
    const InterruptScope interrupt;
    std::string text;
    while (auto event = handle->next()) {
      if (event->error) warn(event->error->message);
      tokens_generated_ += event->id ? 1 : 0;
      text += event->text;
      print(event->text);
      std::fflush(stdout);
      if (InterruptScope::raised()) handle->cancel();
    }
    print("\n");
    std::fflush(stdout);
    tokens_read_ += prompt->size();
    seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    messages_.push_back(make_message("assistant", text));
  }

  /// Without a template the messages are simply lines of text.
  Result<std::vector<std::int32_t>> plain_prompt() {
    std::string text;
    for (const Json& message : messages_) {
      const Json* content = message.find("content");
      if (content != nullptr && content->is_string()) text += content->as_string() + "\n";
    }
    return raw_prompt(engine_, text);
  }

  void drop_message(const Error& error) {
    report(error);
    messages_.pop_back();
  }

  Engine& engine_;
  SamplingParams sampling_;
  std::string system_;
  JsonArray messages_;
  std::size_t tokens_read_ = 0;
  std::size_t tokens_generated_ = 0;
  double seconds_ = 0.0;
};

int chat(const ChatFlags& flags) {
  auto opened = flags.model.open();
  if (!opened) return report(opened.error());
  Engine& engine = **opened;
  auto sampling = flags.sampling.resolve(engine.defaults());
  if (!sampling) return report(sampling.error());
  if (const auto problem = validate(*sampling, engine.info().vocab_size)) return report(*problem);
  LineEditor editor;
  if (editor.on_terminal() && !flags.model.quiet) {
    std::fprintf(stderr, "%s on %s. /help lists the commands, Ctrl-D leaves.\n", engine.info().name.c_str(),
                 engine.info().device.c_str());
    if (engine.chat_template().empty()) warn("the model has no chat template; messages go in as plain lines");
  }
  Conversation conversation(engine, flags, std::move(*sampling));
  while (const auto line = editor.read()) {
    if (!conversation.take(*line)) break;
  }
  return kExitDone;
}

}  // namespace

VerbBody declare_chat(CLI::App& app) {
  const auto flags = std::make_shared<ChatFlags>();
  add_model_flags(app, flags->model);
  add_sampling_flags(app, flags->sampling);
  app.add_option("--system", flags->system, "system message")->option_text("TEXT");
  return [flags] { return chat(*flags); };
}

}  // namespace vernier::cli
