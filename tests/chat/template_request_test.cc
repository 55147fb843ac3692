// The request form of `template --jsonl`: what it takes and what it refuses by path.
#include "chat_test_support.h"

namespace vernier::test {
namespace {

Result<TemplateRequest> parse(std::string_view text) {
  VN_ASSIGN(const Json json, parse_json(text));
  return parse_template_request(json);
}

void expect_refused(std::string_view text, std::string_view part) {
  const auto result = parse(text);
  ASSERT_FALSE(result.has_value()) << text;
  EXPECT_EQ(result.error().code, ErrorCode::kInvalidArgument);
  EXPECT_NE(result.error().message.find(part), std::string::npos) << result.error().message;
}

TEST(TemplateRequest, AllFields) {
  const auto request =
      parse(R"({"messages":[{"role":"user","content":"x"}],"tools":[{}],"documents":[],"add_generation_prompt":true,)"
            R"("kwargs":{"enable_thinking":false},"bos_token":"<s>","eos_token":"","now":"2026-01-31T09:05:07"})");
  ASSERT_TRUE(request.has_value()) << request.error().message;
  EXPECT_EQ(request->messages.as_array().size(), 1U);
  EXPECT_TRUE(request->tools.is_array());
  EXPECT_TRUE(request->add_generation_prompt);
  EXPECT_EQ(request->bos_token, "<s>");
  EXPECT_EQ(request->eos_token, "");
  ASSERT_TRUE(request->now.has_value());
  EXPECT_EQ(request->now->month, 1);
  EXPECT_EQ(request->now->second, 7);
}

TEST(TemplateRequest, OnlyMessagesAreNeeded) {
  const auto request = parse(R"({"messages":[]})");
  ASSERT_TRUE(request.has_value());
  EXPECT_TRUE(request->tools.is_null());
  EXPECT_FALSE(request->now.has_value());
  EXPECT_FALSE(request->bos_token.has_value());
}

TEST(TemplateRequest, Refusals) {
  expect_refused("[]", "request: found array, expected an object");
  expect_refused("{}", "messages: missing");
  expect_refused(R"({"messages":null})", "messages: found null");
  expect_refused(R"({"messages":[{"role":"user"},1]})", "messages[1]: found integer, expected an object");
  expect_refused(R"({"messages":[{"role":"user"},{"content":"x"}]})", "messages[1].role: missing");
  expect_refused(R"({"messages":[{"role":5}]})", "messages[0].role: found integer, expected a string");
  expect_refused(R"({"messages":[],"chat_template":"x"})", "unknown field 'chat_template'");
  expect_refused(R"({"messages":[],"tools":{}})", "tools: found object");
  expect_refused(R"({"messages":[],"add_generation_prompt":1})", "add_generation_prompt: found integer");
  expect_refused(R"({"messages":[],"kwargs":[]})", "kwargs: found array");
  expect_refused(R"({"messages":[],"kwargs":{"messages":[]}})", "kwargs.messages: this name is reserved");
  expect_refused(R"({"messages":[],"kwargs":{"raise_exception":1}})", "kwargs.raise_exception: this name is reserved");
  expect_refused(R"({"messages":[],"kwargs":{"chat_template":"x"}})", "kwargs.chat_template: this name is reserved");
  expect_refused(R"({"messages":[],"kwargs":{"__class__":1}})", "kwargs.__class__: this name is reserved");
  expect_refused(R"({"messages":[],"kwargs":{"":1}})", "reserved");
  expect_refused(R"({"messages":[],"bos_token":null})", "bos_token: found null");
  for (const char* now :
       {"2026-01-31", "2026-13-31T09:05:00", "2026-01-31T25:05:00", "2026-01-31 09:05:00", "-026-01-31T09:05:00"}) {
    expect_refused(std::string(R"({"messages":[],"now":")") + now + "\"}", "now: ");
  }
}

TEST(TemplateRequest, RenderRefusesReservedNamesToo) {
  const auto compiled = ChatTemplate::compile("x");
  ASSERT_TRUE(compiled.has_value());
  TemplateRequest request;
  request.messages = JsonArray();
  request.kwargs.set("tools", Json(1));
  const auto result = compiled->render(request);
  ASSERT_FALSE(result.has_value());
  EXPECT_NE(result.error().message.find("kwargs.tools"), std::string::npos);
}

TEST(TemplateRequest, TokensAreUndefinedWhenAbsent) {
  EXPECT_EQ(render("{{ bos_token is defined }}{{ tools is defined }}{{ tools is none }}").value_or("error"),
            "FalseTrueTrue");
}

TEST(TemplateRequest, ContentOfAnyKindGoesIn) {
  EXPECT_EQ(render("{% for m in messages %}{{ m.content }};{% endfor %}",
                   R"({"messages":[{"role":"a","content":null},{"role":"b","content":[1,"x"]},)"
                   R"({"role":"c","content":{"k":1.5}},{"role":"d","content":18446744073709551615}]})")
                .value_or("error"),
            "None;[1, 'x'];{'k': 1.5};18446744073709551615;");
}

TEST(TemplateRequest, LocalTimeIsTheDefault) {
  const auto year = render("{{ strftime_now('%Y') | int > 2000 }}");
  EXPECT_EQ(year.value_or("error"), "True");
}

}  // namespace
}  // namespace vernier::test
