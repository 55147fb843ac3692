// Reads and checks what a caller wants to have rendered. Nothing here knows Jinja.
#include <algorithm>
#include <array>
#include <charconv>

#include "chat/chat_template.h"

namespace vernier {
namespace {

/// Names a template may rely on to mean what the engine says they mean.
constexpr std::array<std::string_view, 26> kReservedNames = {"messages",
                                                             "tools",
                                                             "documents",
                                                             "add_generation_prompt",
                                                             "bos_token",
                                                             "eos_token",
                                                             "chat_template",
                                                             "tokenize",
                                                             "namespace",
                                                             "range",
                                                             "dict",
                                                             "cycler",
                                                             "raise_exception",
                                                             "strftime_now",
                                                             "joiner",
                                                             "lipsum",
                                                             "loop",
                                                             "caller",
                                                             "varargs",
                                                             "kwargs",
                                                             "self",
                                                             "true",
                                                             "false",
                                                             "none",
                                                             "context",
                                                             "environment"};

tl::unexpected<Error> wrong_type(std::string_view path, const Json& found, std::string_view expected) {
  return fail(ErrorCode::kInvalidArgument, "{}: found {}, expected {}", path, found.type_name(), expected);
}

Status check_messages(const Json& messages) {
  if (!messages.is_array()) return wrong_type("messages", messages, "an array");
  std::size_t index = 0;
  for (const Json& message : messages.as_array()) {
    const std::string path = fmt::format("messages[{}]", index++);
    if (!message.is_object()) return wrong_type(path, message, "an object");
    const Json* role = message.find("role");
    if (role == nullptr) return fail(ErrorCode::kInvalidArgument, "{}.role: missing", path);
    if (!role->is_string()) return wrong_type(path + ".role", *role, "a string");
  }
  return {};
}

Result<int> parse_digits(std::string_view text, std::size_t at, std::size_t count) {
  int value = 0;
  const char* end = text.data() + at + count;
  const auto [stop, problem] = std::from_chars(text.data() + at, end, value);
  if (problem != std::errc() || stop != end || value < 0) {
    return fail(ErrorCode::kInvalidArgument, "now: '{}', expected a time such as 2026-01-31T09:05:00", escape(text));
  }
  return value;
}

Result<TemplateTime> parse_time(std::string_view text) {
  constexpr std::string_view kForm = "0000-00-00T00:00:00";
  bool good = text.size() == kForm.size();
  for (std::size_t i = 0; good && i < text.size(); ++i) {
    good = kForm[i] == '0' ? text[i] >= '0' && text[i] <= '9' : text[i] == kForm[i];
  }
  if (!good) {
    return fail(ErrorCode::kInvalidArgument, "now: '{}', expected a time such as 2026-01-31T09:05:00", escape(text));
  }
  TemplateTime time;
  VN_ASSIGN(time.year, parse_digits(text, 0, 4));
  VN_ASSIGN(time.month, parse_digits(text, 5, 2));
  VN_ASSIGN(time.day, parse_digits(text, 8, 2));
  VN_ASSIGN(time.hour, parse_digits(text, 11, 2));
  VN_ASSIGN(time.minute, parse_digits(text, 14, 2));
  VN_ASSIGN(time.second, parse_digits(text, 17, 2));
  if (time.year < 1 || time.month < 1 || time.month > 12 || time.day < 1 || time.day > 31 || time.hour > 23 ||
      time.minute > 59 || time.second > 59) {
    return fail(ErrorCode::kInvalidArgument, "now: '{}' is not a point of time", escape(text));
  }
  return time;
}

Status read_field(TemplateRequest& request, const std::string& name, const Json& value) {
  if (name == "messages") {
    VN_TRY(check_messages(value));
    request.messages = value;
  } else if (name == "tools" || name == "documents") {
    if (!value.is_null() && !value.is_array()) return wrong_type(name, value, "an array or null");
    (name == "tools" ? request.tools : request.documents) = value;
  } else if (name == "add_generation_prompt") {
    if (!value.is_bool()) return wrong_type(name, value, "true or false");
    request.add_generation_prompt = value.as_bool();
  } else if (name == "kwargs") {
    if (!value.is_object()) return wrong_type(name, value, "an object");
    VN_TRY(check_template_kwargs(value.as_object()));
    request.kwargs = value.as_object();
  } else if (name == "bos_token" || name == "eos_token") {
    if (!value.is_string()) return wrong_type(name, value, "a string");
    (name == "bos_token" ? request.bos_token : request.eos_token) = value.as_string();
  } else if (name == "now") {
    if (!value.is_string()) return wrong_type(name, value, "a string");
    VN_ASSIGN(request.now, parse_time(value.as_string()));
  } else {
    return fail(ErrorCode::kInvalidArgument,
                "unknown field '{}', expected messages, tools, documents, add_generation_prompt, kwargs, bos_token, "
                "eos_token or now",
                escape(name));
  }
  return {};
}

}  // namespace

Status check_template_kwargs(const JsonObject& kwargs) {
  for (const auto& [name, value] : kwargs) {
    const bool reserved = std::find(kReservedNames.begin(), kReservedNames.end(), name) != kReservedNames.end();
    if (reserved || name.empty() || name.front() == '_') {
      return fail(ErrorCode::kInvalidArgument, "kwargs.{}: this name is reserved", escape(name));
    }
  }
  return {};
}

Result<TemplateRequest> parse_template_request(const Json& json) {
  if (!json.is_object()) return wrong_type("request", json, "an object");
  TemplateRequest request;
  for (const auto& [name, value] : json.as_object()) VN_TRY(read_field(request, name, value));
  if (json.find("messages") == nullptr) return fail(ErrorCode::kInvalidArgument, "messages: missing");
  return request;
}

}  // namespace vernier
