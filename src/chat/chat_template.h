// Chat templates: a compiled Jinja template that turns messages into the prompt text a model was trained on.
// The language itself lives in chat/jinja/; this header is all that other folders need. docs/chat-templates.md says
// what is supported. Templates and requests are untrusted: they can only produce an Error.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/json.h"
#include "base/result.h"

namespace vernier {

/// What one template may cost. A render that exceeds any of these ends with an Error that names the limit.
struct TemplateLimits {
  std::size_t max_source_bytes = 256U << 10U;
  std::size_t max_nesting = 128;        ///< statements and expressions inside each other, values inside values
  std::uint64_t max_steps = 1'000'000;  ///< nodes evaluated, plus one for each KiB of text that an operation reads
  std::size_t max_output_bytes = 16U << 20U;
  std::size_t max_memory_bytes = 128U << 20U;   ///< live strings, lists and dicts, counted before they are allocated
  std::chrono::milliseconds max_cpu_time{250};  ///< of the rendering thread, looked at now and then; 0 = no limit
};

/// A point of local time as strftime_now sees it.
struct TemplateTime {
  int year = 1970;
  int month = 1;  ///< 1..12
  int day = 1;    ///< 1..31
  int hour = 0;
  int minute = 0;
  int second = 0;
};

/// What a template is given. Messages go in as they are: nothing is renamed, nothing is dropped.
struct TemplateRequest {
  Json messages;   ///< an array of objects
  Json tools;      ///< null = none (`tools is defined` is true either way)
  Json documents;  ///< null = none
  bool add_generation_prompt = false;
  JsonObject kwargs;                     ///< further variables; reserved names are refused by render()
  std::optional<std::string> bos_token;  ///< undefined in the template when absent
  std::optional<std::string> eos_token;
  std::optional<TemplateTime> now;  ///< absent = the current local time
};

/// A compiled template. Immutable: render() may run on several threads at once. Copies share the compiled form.
class ChatTemplate {
 public:
  /// Compiles `source`. Errors (kCorrupt) read "template line N: ...": syntax, unknown filter, limits.
  [[nodiscard]] static Result<ChatTemplate> compile(std::string_view source, const TemplateLimits& limits = {});

  /// Renders one prompt. Errors (kInvalidArgument) read "template line N: ..."; the text that a template hands to
  /// raise_exception() is contained word for word, except that control characters are escaped.
  [[nodiscard]] Result<std::string> render(const TemplateRequest& request) const;

 private:
  struct Compiled;
  explicit ChatTemplate(std::shared_ptr<const Compiled> compiled) : compiled_(std::move(compiled)) {}
  std::shared_ptr<const Compiled> compiled_;
};

/// Reads the form of `vernier template --jsonl`: an object with "messages" and optionally "tools", "documents",
/// "add_generation_prompt", "kwargs", "bos_token", "eos_token", "now" ("2026-01-31T09:05:00"). Unknown fields, wrong
/// types, reserved names in kwargs and messages that aren't objects with a role are refused by their path, such as
/// "messages[3].role".
[[nodiscard]] Result<TemplateRequest> parse_template_request(const Json& json);

/// Refuses names that the template engine itself defines ("messages", "raise_exception", "_x", ...).
[[nodiscard]] Status check_template_kwargs(const JsonObject& kwargs);

}  // namespace vernier
