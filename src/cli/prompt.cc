#include "cli/prompt.h"

#include <charconv>
#include <cstdio>
#include <memory>

#include "chat/guarded_prompt.h"

namespace vernier::cli {
namespace {

constexpr std::size_t kMaxTextBytes = std::size_t{256} << 20U;

template <class T>
Result<T> from_outcome(Outcome<T> outcome) {
  if (!outcome) return tl::unexpected(outcome.error());
  return std::move(outcome.value());
}

}  // namespace

Result<std::vector<std::int32_t>> parse_ids(std::string_view text) {
  std::vector<std::int32_t> ids;
  const auto is_separator = [](char c) {
    return c == ',' || c == ' ' || c == '\n' || c == '\t' || c == '[' || c == ']';
  };
  const char* const end = text.data() + text.size();
  for (const char* at = text.data(); at != end;) {
    if (is_separator(*at)) {
      ++at;
      continue;
    }
    std::int32_t id = 0;
    const auto [next, error] = std::from_chars(at, end, id);
    if (error != std::errc() || (next != end && !is_separator(*next))) {
      return fail(ErrorCode::kInvalidArgument, "ids must be integers separated by commas, found '{}'",
                  escape(std::string_view(at, static_cast<std::size_t>(end - at)), 32));
    }
    ids.push_back(id);
    at = next;
  }
  return ids;
}

Result<std::string> read_text(const std::string& path) {
  const bool standard = path == "-";
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> owned(standard ? nullptr : std::fopen(path.c_str(), "rb"),
                                                              [](std::FILE* file) { return std::fclose(file); });
  std::FILE* file = standard ? stdin : owned.get();
  if (file == nullptr) return fail(ErrorCode::kNotFound, "{}: cannot be read", escape(path));
  std::string text;
  char chunk[65536];
  std::size_t count = 0;
  while ((count = std::fread(chunk, 1, sizeof chunk, file)) > 0) {
    text.append(chunk, count);
    if (text.size() > kMaxTextBytes) {
      return fail(ErrorCode::kInvalidArgument, "{}: longer than {} bytes", standard ? "standard input" : escape(path),
                  kMaxTextBytes);
    }
  }
  if (std::ferror(file) != 0)
    return fail(ErrorCode::kIo, "{}: cannot be read", standard ? "standard input" : escape(path));
  return text;
}

Json make_message(std::string_view role, std::string_view content) {
  JsonObject message;
  message.set("role", role);
  message.set("content", content);
  return message;
}

Result<std::vector<std::int32_t>> chat_prompt(const Engine& engine, const JsonArray& messages) {
  VN_ASSIGN(const ChatTemplate chat_template, ChatTemplate::compile(engine.chat_template()));
  TemplateRequest request;
  request.messages = messages;
  request.add_generation_prompt = true;
  request.bos_token = engine.bos_text();
  request.eos_token = engine.eos_text();
  VN_ASSIGN(const GuardedPrompt prompt, render_guarded(chat_template, std::move(request), engine.special_texts()));
  std::vector<LiteralRange> literal;
  for (const GuardedPrompt::Range& range : prompt.literal) literal.push_back({range.begin, range.end});
  // The template has put BOS where the model wants it.
  return from_outcome(engine.tokenize(prompt.text, /*add_special=*/false, /*parse_special=*/true, literal));
}

Result<std::vector<std::int32_t>> raw_prompt(const Engine& engine, std::string_view text) {
  return from_outcome(engine.tokenize(text, /*add_special=*/true, /*parse_special=*/true));
}

}  // namespace vernier::cli
