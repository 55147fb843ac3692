// Ctrl-C as a flag that loops look at, instead of a sudden end.
#pragma once

namespace vernier::cli {

/// From construction to destruction SIGINT only sets a flag; a second SIGINT while it is set ends the program.
class InterruptScope {
 public:
  InterruptScope();
  ~InterruptScope();
  InterruptScope(const InterruptScope&) = delete;
  InterruptScope& operator=(const InterruptScope&) = delete;

  [[nodiscard]] static bool raised();
  static void clear();
};

}  // namespace vernier::cli
