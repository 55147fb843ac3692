#include "cli/interrupt.h"

#include <unistd.h>

#include <atomic>
#include <csignal>

#include "cli/report.h"

namespace vernier::cli {
namespace {

std::atomic<bool> interrupted{false};

extern "C" void on_interrupt(int) {
  if (interrupted.exchange(true)) _exit(kExitInterrupted);
}

}  // namespace

InterruptScope::InterruptScope() {
  clear();
  std::signal(SIGINT, on_interrupt);
}
InterruptScope::~InterruptScope() { std::signal(SIGINT, SIG_DFL); }
bool InterruptScope::raised() { return interrupted.load(); }
void InterruptScope::clear() { interrupted.store(false); }

}  // namespace vernier::cli
