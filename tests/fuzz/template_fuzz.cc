// Any template source either fails to compile or renders, or fails to, within its budget.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "chat/chat_template.h"

namespace {

const vernier::TemplateRequest& request() {
  static const vernier::TemplateRequest kRequest = [] {
    const auto json = vernier::parse_json(
        R"({"messages":[{"role":"system","content":"Be brief."},{"role":"user","content":"héllo <b> \n"},)"
        R"({"role":"assistant","content":"","reasoning_content":"hm","tool_calls":[{"id":"1","type":"function",)"
        R"("function":{"name":"f","arguments":{"a":[1,2.5,null,true]}}}]},{"role":"tool","content":[{"type":"text",)"
        R"("text":"5"}]}],"tools":[{"type":"function","function":{"name":"f","parameters":{}}}],)"
        R"("add_generation_prompt":true,"bos_token":"<s>","eos_token":"</s>","now":"2026-01-31T09:05:00"})");
    if (!json) std::abort();
    const auto parsed = vernier::parse_template_request(*json);
    if (!parsed) std::abort();
    return *parsed;
  }();
  return kRequest;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  vernier::TemplateLimits limits;
  limits.max_source_bytes = 64U << 10U;
  limits.max_steps = 20'000;
  limits.max_output_bytes = 256U << 10U;
  limits.max_memory_bytes = 4U << 20U;
  limits.max_cpu_time = std::chrono::milliseconds(0);
  const std::string_view source(reinterpret_cast<const char*>(data), size);
  const auto compiled = vernier::ChatTemplate::compile(source, limits);
  if (!compiled) {
    if (compiled.error().message.empty()) std::abort();
    return 0;
  }
  const auto text = compiled->render(request());
  if (text && text->size() > limits.max_output_bytes) std::abort();
  return 0;
}
