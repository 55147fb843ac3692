// Chat prompts in which nothing that users wrote can pose as a special token. Special-token text inside messages is
// marked before rendering and its place in the rendered text is reported, so that it can be tokenized as text.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "chat/chat_template.h"

namespace vernier {

struct GuardedPrompt {
  struct Range {
    std::size_t begin = 0;
    std::size_t end = 0;
  };
  std::string text;            ///< exactly what the template renders without any marks
  std::vector<Range> literal;  ///< byte ranges of user-written special-token text, ascending and disjoint
};

/// Renders `request` with the texts of special tokens in its messages, tools and documents guarded. Errors are those of
/// ChatTemplate::render.
[[nodiscard]] Result<GuardedPrompt> render_guarded(const ChatTemplate& chat_template, TemplateRequest request,
                                                   std::span<const std::string> special_texts);

}  // namespace vernier
