// Renderings equal to jinja2's: public chat templates, small templates of one feature each, and odd corners of the
// language. tools/make_chat_goldens.py tells how the last were made.
#include <map>

#include "chat_test_support.h"

namespace vernier::test {
namespace {

/// Is `got` what the golden row asks for?
void expect_golden(const Json& row, const Result<std::string>& got, const std::string& what) {
  const Json* text = row.find("text");
  if (text != nullptr) {
    ASSERT_TRUE(got.has_value()) << what << ": " << got.error().message;
    EXPECT_EQ(*got, text->as_string()) << what;
    return;
  }
  if (got.has_value()) {
    const Json* other = row.find("or_text");
    ASSERT_NE(other, nullptr) << what << ": no error, but " << *got;
    EXPECT_EQ(*got, other->as_string()) << what;
    return;
  }
  EXPECT_NE(got.error().message.find("template line "), std::string::npos) << what << ": " << got.error().message;
  const Json* kind = row.find("error");
  if (kind->is_string() && kind->as_string() == "raise_exception") {
    EXPECT_NE(got.error().message.find(row.find("message")->as_string()), std::string::npos) << what;
  }
  if (kind->is_string() && kind->as_string() == "compile") {
    EXPECT_EQ(got.error().code, ErrorCode::kCorrupt) << what;
  }
}

TEST(ChatGolden, PublicTemplates) {
  std::map<std::string, Json> requests;
  for (const Json& row : read_chat_lines("requests.jsonl")) {
    requests[row.find("name")->as_string()] = without(row, {"name"});
  }
  std::map<std::string, std::string> sources;
  std::size_t count = 0;
  for (const Json& row : read_chat_lines("goldens.jsonl")) {
    const std::string& name = row.find("template")->as_string();
    const std::string& list = row.find("list")->as_string();
    if (!sources.contains(name)) sources[name] = read_chat_file("templates/" + name + ".jinja");
    expect_golden(row, render_json(sources[name], requests[list]), name + " " + list);
    ++count;
  }
  EXPECT_EQ(count, 196U);
}

TEST(ChatGolden, OneFeatureEach) {
  const std::vector<Json> rows = read_chat_lines("minis.jsonl");
  EXPECT_EQ(rows.size(), 46U);
  for (const Json& row : rows) {
    const Result<std::string> got = render_json(row.find("template")->as_string(), *row.find("request"));
    expect_golden(row, got, row.find("name")->as_string());
  }
}

TEST(ChatGolden, LanguageCorners) {
  constexpr std::string_view kRequest =
      R"({"messages":[{"role":"system","content":"Sys <b>"},{"role":"user","content":"héllo wörld"},)"
      R"({"role":"assistant","content":null,"n":3,"x":1.5,)"
      R"("tool_calls":[{"function":{"name":"f","arguments":{"b":1,"a":"x"}}}]}],)"
      R"("add_generation_prompt":true,"bos_token":"<s>","now":"2026-01-31T09:05:00","kwargs":{"foo":"bar","num":7}})";
  for (const Json& row : read_chat_lines("language.jsonl")) {
    const std::string& source = row.find("template")->as_string();
    expect_golden(row, render(source, kRequest), source);
  }
}

}  // namespace
}  // namespace vernier::test
