#include "cli/line_editor.h"

#include <histedit.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

namespace vernier::cli {
namespace {

constexpr int kHistoryLines = 1000;

char* show_prompt(EditLine*) {
  static char prompt[] = "> ";
  return prompt;
}

}  // namespace

struct LineEditor::Impl {
  EditLine* editor = nullptr;  // null: no terminal
  History* history = nullptr;
};

LineEditor::LineEditor() : impl_(std::make_unique<Impl>()) {
  if (isatty(STDIN_FILENO) == 0 || isatty(STDERR_FILENO) == 0) return;
  impl_->editor = el_init("vernier", stdin, stderr, stderr);
  impl_->history = history_init();
  if (impl_->editor == nullptr || impl_->history == nullptr) return;
  HistEvent event;
  history(impl_->history, &event, H_SETSIZE, kHistoryLines);
  el_set(impl_->editor, EL_PROMPT, show_prompt);
  el_set(impl_->editor, EL_EDITOR, "emacs");
  el_set(impl_->editor, EL_HIST, history, impl_->history);
}

LineEditor::~LineEditor() {
  if (impl_->history != nullptr) history_end(impl_->history);
  if (impl_->editor != nullptr) el_end(impl_->editor);
}

bool LineEditor::on_terminal() const { return impl_->editor != nullptr; }

std::optional<std::string> LineEditor::read() {
  std::string line;
  if (impl_->editor != nullptr) {
    int length = 0;
    const char* text = el_gets(impl_->editor, &length);
    if (text == nullptr || length <= 0) return std::nullopt;
    line.assign(text, static_cast<std::size_t>(length));
    HistEvent event;
    if (line.find_first_not_of(" \n") != std::string::npos) history(impl_->history, &event, H_ENTER, line.c_str());
  } else {
    char* text = nullptr;
    std::size_t capacity = 0;
    const ssize_t length = getline(&text, &capacity, stdin);
    if (length >= 0) line.assign(text, static_cast<std::size_t>(length));
    std::free(text);
    if (length < 0) return std::nullopt;
  }
  while (!line.empty() && (line.back() == '\n' || line.back() == '\r')) line.pop_back();
  return line;
}

}  // namespace vernier::cli
