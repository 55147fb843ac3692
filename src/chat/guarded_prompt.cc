#include "chat/guarded_prompt.h"

#include <algorithm>

namespace vernier {
namespace {

// Noncharacters: Unicode reserves them for use inside a program, so no text that is exchanged contains them.
constexpr std::string_view kOpen = "\uFDD0";
constexpr std::string_view kClose = "\uFDD1";
constexpr std::string_view kReplacement = "\uFFFD";

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  for (std::size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size())) {
    text.replace(at, from.size(), to);
  }
}

/// Puts marks around each special-token text, longest first at one place.
std::string marked(std::string text, std::span<const std::string> special_texts) {
  replace_all(text, kOpen, kReplacement);
  replace_all(text, kClose, kReplacement);
  std::string out;
  std::size_t at = 0;
  while (at < text.size()) {
    const std::string* longest = nullptr;
    for (const std::string& special : special_texts) {
      if (!special.empty() && text.compare(at, special.size(), special) == 0 &&
          (longest == nullptr || special.size() > longest->size())) {
        longest = &special;
      }
    }
    if (longest == nullptr) {
      out.push_back(text[at++]);
      continue;
    }
    out.append(kOpen).append(*longest).append(kClose);
    at += longest->size();
  }
  return out;
}

bool may_hold_special(const std::string& text, std::span<const std::string> special_texts) {
  return text.find(kOpen) != std::string::npos || text.find(kClose) != std::string::npos ||
         std::any_of(special_texts.begin(), special_texts.end(), [&](const std::string& special) {
           return !special.empty() && text.find(special) != std::string::npos;
         });
}

/// Marks all strings within a value. Its depth is bounded by the JSON parser's limit.
Json guarded(const Json& value, std::span<const std::string> special_texts) {
  if (value.is_string()) {
    if (!may_hold_special(value.as_string(), special_texts)) return value;
    return marked(value.as_string(), special_texts);
  }
  if (value.is_array()) {
    JsonArray items;
    for (const Json& item : value.as_array()) items.push_back(guarded(item, special_texts));
    return items;
  }
  if (value.is_object()) {
    JsonObject members;
    for (const auto& [key, item] : value.as_object()) members.set(key, guarded(item, special_texts));
    return members;
  }
  return value;
}

/// Takes the marks out of rendered text and notes what they enclosed. Template operations may have torn a pair apart
/// (a slice, a trim); then the stretch runs to the next mark or the end, which keeps it text.
GuardedPrompt unmarked(std::string_view rendered) {
  GuardedPrompt prompt;
  bool open = false;
  std::size_t begin = 0;
  const auto close = [&] {
    if (open && prompt.text.size() > begin) prompt.literal.push_back({begin, prompt.text.size()});
    open = false;
  };
  for (std::size_t at = 0; at < rendered.size();) {
    if (rendered.compare(at, kOpen.size(), kOpen) == 0) {
      close();
      open = true;
      begin = prompt.text.size();
      at += kOpen.size();
    } else if (rendered.compare(at, kClose.size(), kClose) == 0) {
      close();
      at += kClose.size();
    } else {
      prompt.text.push_back(rendered[at++]);
    }
  }
  close();
  return prompt;
}

}  // namespace

Result<GuardedPrompt> render_guarded(const ChatTemplate& chat_template, TemplateRequest request,
                                     std::span<const std::string> special_texts) {
  request.messages = guarded(request.messages, special_texts);
  request.tools = guarded(request.tools, special_texts);
  request.documents = guarded(request.documents, special_texts);
  VN_ASSIGN(const std::string rendered, chat_template.render(request));
  return unmarked(rendered);
}

}  // namespace vernier
