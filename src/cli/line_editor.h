// One line of input: edited with history on a terminal, plain from a pipe.
#pragma once

#include <memory>
#include <optional>
#include <string>

namespace vernier::cli {

class LineEditor {
 public:
  LineEditor();
  ~LineEditor();
  LineEditor(const LineEditor&) = delete;
  LineEditor& operator=(const LineEditor&) = delete;

  /// The next line without its end; nothing at the end of input. The prompt "> " is shown on terminals only.
  [[nodiscard]] std::optional<std::string> read();
  [[nodiscard]] bool on_terminal() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace vernier::cli
