#include "chat/chat_template.h"

#include "base/utf8.h"
#include "chat/jinja/interpreter.h"
#include "chat/jinja/parser.h"

namespace vernier {

struct ChatTemplate::Compiled {
  jinja::Program program;
  TemplateLimits limits;
};

Result<ChatTemplate> ChatTemplate::compile(std::string_view source, const TemplateLimits& limits) {
  if (source.size() > limits.max_source_bytes) {
    return fail(ErrorCode::kCorrupt, "template of {} bytes exceeds the limit of {}", source.size(),
                limits.max_source_bytes);
  }
  auto compiled = std::make_shared<Compiled>();
  compiled->limits = limits;
  VN_ASSIGN(compiled->program,
            is_valid_utf8(source) ? jinja::parse(source, limits) : jinja::parse(replace_invalid_utf8(source), limits));
  return ChatTemplate(std::move(compiled));
}

Result<std::string> ChatTemplate::render(const TemplateRequest& request) const {
  VN_TRY(check_template_kwargs(request.kwargs));
  return jinja::Interpreter(compiled_->program, compiled_->limits).run(request);
}

}  // namespace vernier
