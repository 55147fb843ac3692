// Helpers of the chat tests: golden files, and rendering in one call.
#pragma once

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "chat/chat_template.h"
#include "support/test_data.h"

namespace vernier::test {

/// Limits for tests: sanitizers and busy machines make the processor time meaningless.
inline TemplateLimits patient_limits() {
  TemplateLimits limits;
  limits.max_cpu_time = std::chrono::milliseconds(0);
  return limits;
}

inline std::string read_chat_file(const std::string& name) {
  std::ifstream file(test_data("chat/" + name), std::ios::binary);
  EXPECT_TRUE(file.good()) << name;
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

/// The values of a file with one JSON value a line.
inline std::vector<Json> read_chat_lines(const std::string& name) {
  std::vector<Json> rows;
  std::istringstream lines(read_chat_file(name));
  for (std::string line; std::getline(lines, line);) {
    Result<Json> row = parse_json(line);
    EXPECT_TRUE(row.has_value()) << name << ": " << line;
    if (row) rows.push_back(*std::move(row));
  }
  return rows;
}

/// The value without the members named.
inline Json without(const Json& object, std::initializer_list<std::string_view> names) {
  JsonObject kept;
  for (const auto& [key, value] : object.as_object()) {
    bool dropped = false;
    for (const std::string_view name : names) dropped |= key == name;
    if (!dropped) kept.set(key, value);
  }
  return kept;
}

/// Compiles and renders; `request` is JSON in the form of `template --jsonl`.
inline Result<std::string> render_json(std::string_view source, const Json& request,
                                       const TemplateLimits& limits = patient_limits()) {
  VN_ASSIGN(const ChatTemplate compiled, ChatTemplate::compile(source, limits));
  VN_ASSIGN(const TemplateRequest parsed, parse_template_request(request));
  return compiled.render(parsed);
}

inline Result<std::string> render(std::string_view source, std::string_view request = R"({"messages":[]})",
                                  const TemplateLimits& limits = patient_limits()) {
  VN_ASSIGN(const Json json, parse_json(request));
  return render_json(source, json, limits);
}

/// Expects an error that holds `part`.
inline void expect_error(const Result<std::string>& result, std::string_view part) {
  ASSERT_FALSE(result.has_value()) << "no error, but: " << result->substr(0, 200);
  EXPECT_NE(result.error().message.find(part), std::string::npos) << result.error().message;
}

}  // namespace vernier::test
